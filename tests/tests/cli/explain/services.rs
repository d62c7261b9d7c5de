//! `explain` about Services and masquerade: what it says of rules agrees with packets.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair, eventually,
    fast::fast_pair,
    load::rr::Protocol,
    no_agent::Talk,
    service_rules::{Backend, Service, ServiceRules},
};
use serde_json::Value;

const SERVICE: &str = "10.96.0.1:80";
const EMPTY: &str = "10.96.0.2:80";
const OUTSIDE: &str = "198.51.100.1";
/// Longer than two refreshes of a flow.
const KNOWN: Duration = Duration::from_secs(10);

fn explain(agent: &Agent, words: &[&str]) -> Result<Value> {
    let output = agent.cli_any(&[&["explain"], words, &["-o", "json"]].concat())?;
    serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))
}

/// State and text of the step about a topic.
fn step<'a>(story: &'a Value, topic: &str) -> Result<(&'a str, &'a str)> {
    let steps = story["steps"].as_array().context("no steps")?;
    let step = steps
        .iter()
        .find(|step| step["topic"] == topic)
        .with_context(|| format!("no {topic}: {story:#}"))?;
    Ok((
        step["state"].as_str().context("a state")?,
        step["text"].as_str().context("a text")?,
    ))
}

/// A Service with two endpoints, one of them real; one without any; and an address outside.
fn follows_rules(pair: &Pair, backend: Backend, named: &str) -> Result<()> {
    let rules = ServiceRules::install(pair.sender.node(), backend, "10.244.0.0/16".parse()?)?;
    let far = SocketAddr::new(pair.far.ip(), 8080);
    let at: SocketAddr = SERVICE.parse()?;
    let services = [
        Service::new(at, Protocol::Tcp, [far]),
        Service::new(EMPTY.parse()?, Protocol::Tcp, []),
    ];
    rules.set(&services)?;
    let near = pair.near.ip().to_string();
    for words in [
        &[near.as_str(), "10.96.0.1"][..],
        &[&near, "10.96.0.1", "--dport=80"],
    ] {
        let story = explain(&pair.sender, words)?;
        let (state, text) = step(&story, "service")?;
        ensure!(
            state == "ok" && text.contains(named) && text.contains(&format!("to {far}")),
            "{text}"
        );
        ensure!(
            step(&story, "destination")?
                .1
                .starts_with(&format!("{} is in ", far.ip())),
            "{story:#}"
        );
        // By the kernel, or by the program of its tunnel device, once that has seen how the kernel
        // does it.
        let way = story["verdict"]["way"].as_str().context("a way")?;
        ensure!(
            story["verdict"]["reaches"] == true && ["kernel", "encap"].contains(&way),
            "{story:#}"
        );
    }
    let story = explain(&pair.sender, &[&near, "10.96.0.1", "--dport=81"])?;
    ensure!(
        step(&story, "service")?
            .1
            .contains("a Service at tcp 80, and not at this port"),
        "{story:#}"
    );
    let story = explain(&pair.sender, &[&near, "10.96.0.2"])?;
    ensure!(
        step(&story, "service")?.0 == "fail" && story["verdict"]["reaches"] == false,
        "{story:#}"
    );
    let story = explain(&pair.sender, &[&near, "10.96.0.3"])?;
    ensure!(
        step(&story, "service").is_err(),
        "no rule names it: {story:#}"
    );
    rules.set(&[])
}

/// A flow that is replayed through a Service: every step is about the same packet.
fn a_known_flow_is_followed(pair: &Pair) -> Result<()> {
    let rules = ServiceRules::install(
        pair.sender.node(),
        Backend::Nftables,
        "10.244.0.0/16".parse()?,
    )?;
    let (far, at) = (SocketAddr::new(pair.far.ip(), 8080), SERVICE.parse()?);
    let elsewhere = SocketAddr::new("10.244.255.9".parse()?, 8080);
    rules.set(&[Service::new(at, Protocol::Tcp, [far])])?;
    let mut talk = Talk::open(&pair.near, &pair.far, far, Some(at))?;
    pair.talk_until_replayed(&mut talk, 100)?;
    // The flow goes on to the endpoint it has, whatever the rules say of new ones.
    rules.set(&[Service::new(at, Protocol::Tcp, [elsewhere, far])])?;
    let near = pair.near.ip().to_string();
    // A change of rules makes flows be learned again, at once and a second later.
    let story = eventually("the known flow", KNOWN, || {
        talk.exchange(100)?;
        let story = explain(&pair.sender, &[&near, "10.96.0.1", "--dport=80"])?;
        let text = step(&story, "service")?.1;
        let expected = format!("known flow to {far}. The steps below follow {far}");
        ensure!(text.contains(&expected), "{text}");
        Ok(story)
    })?;
    ensure!(
        step(&story, "flow")?.1.contains(&format!(" to {far}")),
        "{story:#}"
    );
    let verdict = story["verdict"]["text"].as_str().unwrap_or_default();
    ensure!(
        verdict.starts_with("it leaves for the node 192.168.2.13, "),
        "{story:#}"
    );
    rules.set(&[])
}

fn masquerade_is_named(pair: &Pair) -> Result<()> {
    let near = pair.near.ip().to_string();
    let story = explain(&pair.sender, &[&near, OUTSIDE])?;
    let (state, text) = step(&story, "masquerade")?;
    ensure!(
        state == "ok" && text.starts_with("it leaves with the address of eth0 in place of "),
        "{text}"
    );
    let story = explain(&pair.sender, &[&near, &pair.far.ip().to_string()])?;
    ensure!(
        step(&story, "masquerade").is_err(),
        "it stays in the cluster: {story:#}"
    );
    Ok(())
}

#[test]
fn services_and_masquerade_are_followed_by_the_rules_of_the_node() -> Result<()> {
    let pair = fast_pair("ex-services", &[])?;
    masquerade_is_named(&pair).context("masquerade")?;
    follows_rules(&pair, Backend::Iptables, "chain KUBE-SVC-0").context("iptables")?;
    // The chains of iptables stay, and kube-proxy's table of nftables goes first.
    follows_rules(
        &pair,
        Backend::Nftables,
        "map service-ips to chain service-0",
    )
    .context("nftables")?;
    a_known_flow_is_followed(&pair).context("a known flow")
}
