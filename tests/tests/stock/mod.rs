//! A real process of stock flannel in the cluster, and in place of our agent.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pod, TwoNodes, eventually,
    load::{UdpLoad, UdpRun, iperf::tcp_stream},
    stock::StockBinary,
};

const LIMIT: Duration = Duration::from_secs(30);
const LOAD: UdpLoad = UdpLoad {
    pps: 200,
    duration: Duration::from_mins(2),
    payload: 64,
};
/// Datagrams of each stream between two steps of a migration.
const BETWEEN: u64 = 200;

fn config(backend: &str) -> String {
    format!(r#"{{"Network":"10.244.0.0/16","Backend":{{"Type":"{backend}"}}}}"#)
}

/// Pods of our node and of a stock node reach each other in these modes of our node.
fn reach(backend: &str, modes: &[&str]) -> Result<()> {
    let what = format!("a process of stock flannel with the backend {backend}");
    let Some(stock) = StockBinary::find(&what)? else {
        return Ok(());
    };
    let nodes = TwoNodes::new(&format!("stock-{backend}"), &config(backend))?;
    let agent = nodes.a.ready_agent(nodes.options()?)?;
    let process = stock.start(&nodes.b, &nodes.endpoint())?;
    agent.wait_peers(1)?;
    let pods = [nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?];
    for mode in modes {
        agent.set_mode(mode)?;
        talk(&pods).with_context(|| format!("mode {mode}"))?;
    }
    process.end()
}

/// Pings and a second of TCP in both directions.
fn talk([ours, stock]: &[Pod; 2]) -> Result<()> {
    for (from, to) in [(ours, stock), (stock, ours)] {
        from.wait_ping(to.ip())?;
        let stream = tcp_stream(from, to, to.ip(), 1, None)?;
        ensure!(stream.bits_per_second > 1e6, "{stream:?}");
    }
    Ok(())
}

#[test]
fn pods_of_both_reach_each_other_by_vxlan() -> Result<()> {
    reach("vxlan", &["encap", "kernel", "fast"])
}

#[test]
fn pods_of_both_reach_each_other_by_host_gw() -> Result<()> {
    reach("host-gw", &["kernel", "fast"])
}

#[test]
fn pods_of_both_reach_each_other_by_udp() -> Result<()> {
    reach("udp", &["kernel"])
}

/// The steps of the page on migration, on one of two nodes, under datagrams in both directions.
#[test]
fn a_node_goes_to_stock_flannel_and_back_and_loses_nothing() -> Result<()> {
    let Some(stock) = StockBinary::find("a migration to stock flannel's own process")? else {
        return Ok(());
    };
    let nodes = TwoNodes::new("stock-migration", &config("vxlan"))?;
    let [other, agent] = nodes.agents()?;
    let pods = [nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?];
    pods[0].wait_ping(pods[1].ip())?;
    let streams = [(0, 1), (1, 0)]
        .map(|(from, to)| UdpRun::start(&pods[from], &pods[to], pods[to].ip(), LOAD));
    let streams = streams.into_iter().collect::<Result<Vec<_>>>()?;
    let (lease, subnet) = (lease(&agent)?, nodes.b.subnet_env()?);

    agent.set_mode("kernel")?;
    agent.cli(&["guard", "set", "off"])?;
    agent.sigterm_and_wait()?;
    let process = stock.start(&nodes.b, &nodes.endpoint())?;
    agent.cli(&["cleanup", "--keep-network"])?;
    wait_arrived(&streams).context("with stock flannel")?;
    ensure!(nodes.b.subnet_env()?.subnets == subnet.subnets);
    process.end()?;
    agent.restart()?;
    agent.wait_ready()?;
    agent.cli(&["datapath", "set", "auto"])?;
    agent.cli(&["guard", "set", "auto"])?;
    wait_arrived(&streams).context("with the agent")?;
    ensure!(self::lease(&agent)? == lease, "another lease");
    other.wait_peers(1)?;
    for stream in streams {
        stream.stop()?.expect_complete()?;
    }
    Ok(())
}

fn lease(agent: &Agent) -> Result<[String; 2]> {
    let lease = &agent.status()?["lease"];
    Ok(["subnet", "public_ip"].map(|field| lease[field].to_string()))
}

/// Waits until further datagrams of each stream have arrived.
fn wait_arrived(streams: &[UdpRun]) -> Result<()> {
    let before: Vec<_> = streams.iter().map(UdpRun::sent).collect();
    eventually("datagrams", LIMIT, || {
        let now: Vec<_> = streams.iter().map(UdpRun::arrived).collect();
        let all = now
            .iter()
            .zip(&before)
            .all(|(now, before)| *now >= before + BETWEEN);
        ensure!(all, "{now:?} after {before:?}");
        Ok(())
    })
}
