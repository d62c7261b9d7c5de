//! A stock node and ours in one cluster.

use std::time::Duration;

use anyhow::{Context as _, Result};
use flannel_tests::{Agent, HandLease, TwoNodes, cluster::VXLAN, load::udp_stream, stock};

const STOCK_MAC: &str = "02:00:00:00:00:08";

/// The agent on `a`; on `b` what stock flannel would have made for the two of them, udpcsum on.
fn mixed_cluster() -> Result<(TwoNodes, Agent)> {
    let pair = TwoNodes::new("mixed", VXLAN)?;
    HandLease::new(8, "192.168.1.12", STOCK_MAC).put(&pair.etcd)?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_ready()?;
    agent.wait_peers(1)?;
    let status = agent.status()?;
    let subnet = status["lease"]["subnet"].as_str().context("a subnet")?;
    let ours = HandLease {
        name: subnet.replace('/', "-"),
        public_ip: "192.168.1.11".to_owned(),
        mac: status["device"]["mac"].as_str().context("a MAC")?.to_owned(),
    };
    assert_eq!(
        pair.etcd.get(&ours.key())?.as_deref(),
        Some(ours.value().as_str()),
        "what we publish is what stock reads"
    );
    stock::device(&pair.b, 8, "192.168.1.12", STOCK_MAC)?;
    stock::tunnel_peer(&pair.b, &ours)?;
    Ok((pair, agent))
}

#[test]
fn a_stock_node_and_ours_talk_both_ways_in_every_mode() -> Result<()> {
    let (pair, agent) = mixed_cluster()?;
    let (ours, stocks) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    for mode in ["kernel", "encap"] {
        agent.set_mode(mode)?;
        ours.ping(stocks.ip())?;
        stocks.ping(ours.ip())?;
        let before = agent.counted("to_tunnel", "encapsulated")?;
        for (from, to) in [(&ours, &stocks), (&stocks, &ours)] {
            let report = udp_stream(from, to, 1000, Duration::from_secs(1))?;
            assert_eq!((report.lost_count(), report.duplicated), (0, 0), "{mode}: {report:?}");
        }
        let encapsulated = agent.counted("to_tunnel", "encapsulated")? - before;
        assert_eq!(encapsulated > 0, mode == "encap", "{encapsulated} packets encapsulated in mode {mode}");
    }
    assert!(agent.counted("from_underlay", "tunnel_good")? > 0);
    Ok(())
}
