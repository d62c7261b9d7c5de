//! `flannel-agent flows list`: flows with the names of their ends, once and as they happen.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, ChildGuard, Pair, agent::pins::monitor_lease, eventually, fast::fast_pair,
};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{hubble::FORGED, schemas::validate};

fn listed(agent: &Agent, flags: &[&str]) -> Result<Vec<Value>> {
    let document = agent.cli_json(&[&["flows", "list", "-o", "json"], flags].concat())?;
    validate("flows", &document)?;
    Ok(document["flows"].as_array().context("no flows")?.clone())
}

/// Names and filters, from the operator's file of hosts and from the leases.
fn lists_names(pair: &Pair) -> Result<()> {
    let agent = &pair.sender;
    let (near, far) = (pair.near.ip().to_string(), pair.far.ip().to_string());
    let flows = listed(agent, &[&format!("--src={near}"), &format!("--dst={far}")])?;
    let [flow] = flows.as_slice() else {
        anyhow::bail!("{flows:#?}")
    };
    ensure!(
        flow["from"]["kind"] == "pod" && flow["from"]["address"] == near.as_str(),
        "{flow:#}"
    );
    let name = agent.node().sh("cat /proc/sys/kernel/hostname")?.stdout;
    ensure!(
        flow["from"]["node"] == name.trim() && flow["to"]["node"] == Value::Null,
        "no names in etcd: {flow:#}"
    );
    let port = flow["from"]["port"].as_u64().context("a port")?;
    ensure!(
        flow["out_to"]["port"] == flow["to"]["port"] && flow["way"] == "tunnel",
        "{flow:#}"
    );
    for (filter, count) in [
        (format!("--port={port}"), 2),
        (format!("--node={}", name.trim()), 2),
        ("--node=elsewhere".to_owned(), 0),
        ("--way=pod".to_owned(), 1),
        ("--pod=web".to_owned(), 0),
    ] {
        let found = listed(agent, &[&filter])?;
        ensure!(found.len() == count, "{filter}: {found:#?}");
    }
    let bare = listed(agent, &["--no-names"])?;
    ensure!(
        bare.iter().all(|flow| flow["from"]["node"] == Value::Null),
        "{bare:#?}"
    );
    Ok(())
}

/// On a terminal of 80 columns no word is cut, and no line is longer.
fn fits_a_terminal(agent: &Agent) -> Result<()> {
    let argv = agent.argv(&["flows", "list"]).join(" ");
    let script = format!("stty cols 80 rows 24 && {argv}");
    let shown = agent
        .node()
        .command(["script", "-qec", &script, "/dev/null"])
        .run()?
        .stdout;
    let lines: Vec<_> = shown
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .collect();
    ensure!(
        lines.iter().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    ensure!(lines.iter().any(|line| line.contains(" -> ")), "{shown}");
    Ok(())
}

pub(super) struct Follower(ChildGuard);

impl Follower {
    pub(super) fn start(agent: &Agent, flags: &[&str]) -> Result<Self> {
        let args = [&["flows", "list", "--follow"], flags].concat();
        let follower = Self(agent.node().spawn("follow", agent.argv(&args))?);
        eventually("following", Duration::from_secs(10), || {
            ensure!(
                follower.0.log().contains("following flows;"),
                "{}",
                follower.0.log()
            );
            Ok(())
        })?;
        Ok(follower)
    }

    /// Waits for an event, each of which is a valid document.
    pub(super) fn event(&self, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually("the event", Duration::from_secs(20), || {
            let log = self.0.log();
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            for line in whole.lines().filter(|line| line.starts_with('{')) {
                let event = serde_json::from_str(line)?;
                validate("flow-event", &event)?;
                if is_wanted(&event) {
                    return Ok(event);
                }
            }
            anyhow::bail!("{log}")
        })
    }

    pub(super) fn interrupt(&self) -> Result<String> {
        self.0.signal(Signal::SIGINT)?;
        self.0.wait_success(Duration::from_secs(10))?;
        Ok(self.0.log())
    }
}

/// A new connection and its end, and a packet that the guard drops.
fn follows_events(pair: &Pair) -> Result<()> {
    let agent = &pair.sender;
    let (near, far) = (pair.near.ip().to_string(), pair.far.ip().to_string());
    // The packets before the first replayed one come as fast as the pods can send them.
    let follower = Follower::start(agent, &["-o", "json", "--rate=100000"])?;
    eventually(
        "the programs asked for drops",
        Duration::from_secs(10),
        || {
            ensure!(monitor_lease(agent.node())? != 0, "they are not");
            Ok(())
        },
    )?;
    let is_from_near = |event: &Value| {
        event["from"]["address"] == near.as_str() && event["to"]["address"] == far.as_str()
    };
    let mut talk = pair.talk()?;
    let syn = follower.event(|event| is_from_near(event) && event["reason"] == "tcp_control")?;
    ensure!(
        syn["event"] == "new" && syn["program"] == "from_pod" && syn["is_reply"] == false,
        "{syn:#}"
    );
    pair.talk_until_replayed(&mut talk, 100)?;
    let replayed = follower.event(|event| is_from_near(event) && event["way"] == "tunnel")?;
    ensure!(
        replayed["reason"] == Value::Null && replayed["direction"] == "egress",
        "{replayed:#}"
    );
    pair.near.run(["bash", "-c", FORGED])?;
    let dropped = follower.event(|event| event["event"] == "dropped")?;
    ensure!(
        dropped["reason"] == "refused_pod_tunnel" && dropped["to"]["host"] == "near.example.org",
        "{dropped:#}"
    );
    expect_one_reader(agent)?;
    let said = follower.interrupt()?;
    ensure!(
        said.contains(" events shown; 0 packets came faster than --rate"),
        "{said}"
    );
    ensure!(
        monitor_lease(agent.node())? == 0,
        "the programs go on reporting"
    );
    shows_drops_as_text(pair)
}

/// The ring buffer has one reader at a time.
fn expect_one_reader(agent: &Agent) -> Result<()> {
    let second = agent
        .node()
        .command(agent.argv(&["monitor"]))
        .expect_code(2)
        .run()?;
    ensure!(
        second.stderr.starts_with("error: a monitor already runs"),
        "{}",
        second.stderr
    );
    Ok(())
}

fn shows_drops_as_text(pair: &Pair) -> Result<()> {
    let text = Follower::start(&pair.sender, &["--verdict=dropped", "--count=1"])?;
    pair.near.run(["bash", "-c", FORGED])?;
    text.0.wait_success(Duration::from_secs(10))?;
    ensure!(
        text.0.log().contains("  dropped  udp    "),
        "{}",
        text.0.log()
    );
    ensure!(
        text.0
            .log()
            .contains(":8472, refused_pod_tunnel at from_pod"),
        "{}",
        text.0.log()
    );
    Ok(())
}

#[test]
fn flows_have_names_and_can_be_followed() -> Result<()> {
    let pair = fast_pair("flows", &["--hosts-file=/run/flannel/hosts"])?;
    fs::write(
        pair.sender.node().outside_path("/run/flannel/hosts"),
        "192.168.1.11 near.example.org\n",
    )?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    lists_names(&pair).context("names")?;
    fits_a_terminal(&pair.sender).context("a terminal")?;
    follows_events(&pair).context("events")
}
