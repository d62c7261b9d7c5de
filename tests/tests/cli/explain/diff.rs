//! `maps dump --diff`: foreign damage, and nothing else.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, StockNode, TwoNodes, cluster::VXLAN, eventually};
use serde_json::Value;

/// The differences, and whether the leases were asked.
fn differences(agent: &Agent) -> Result<(Vec<Value>, bool)> {
    let output = agent.cli_any(&["maps", "dump", "--diff", "-o", "json"])?;
    let document: Value =
        serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    let found = document["differences"]
        .as_array()
        .context("no differences")?
        .clone();
    ensure!(output.code == i32::from(!found.is_empty()), "{output:?}");
    Ok((found, document["leases"] == true))
}

/// A command that changes the kernel's state, the one that repairs it, and the difference.
struct Damage {
    line: &'static str,
    repair: &'static str,
    place: &'static str,
    object: &'static str,
    found: Option<&'static str>,
    wanted: Option<&'static str>,
}

const DAMAGES: [Damage; 4] = [
    Damage {
        line: "bridge fdb del 02:00:00:00:00:09 dev flannel.1 dst 192.168.1.12",
        repair: "bridge fdb add 02:00:00:00:00:09 dev flannel.1 dst 192.168.1.12",
        place: "fdb",
        object: "02:00:00:00:00:09",
        found: None,
        wanted: Some("192.168.1.12"),
    },
    Damage {
        line: "ip neigh replace 10.244.10.0 lladdr 02:00:00:00:00:77 nud permanent dev flannel.1",
        repair: "ip neigh replace 10.244.10.0 lladdr 02:00:00:00:00:0a nud permanent dev flannel.1",
        place: "neighbour",
        object: "10.244.10.0",
        found: Some("02:00:00:00:00:77"),
        wanted: Some("02:00:00:00:00:0a"),
    },
    Damage {
        line: "ip route add 10.244.77.0/24 via 10.244.77.0 dev flannel.1 onlink",
        repair: "ip route del 10.244.77.0/24",
        place: "route",
        object: "10.244.77.0/24",
        found: Some("via 10.244.77.0"),
        wanted: None,
    },
    Damage {
        line: "ip route del 10.244.9.0/24",
        repair: "ip route add 10.244.9.0/24 via 10.244.9.0 dev flannel.1 onlink",
        place: "route",
        object: "10.244.9.0/24",
        found: None,
        wanted: Some("via 10.244.9.0"),
    },
];

impl Damage {
    /// This difference is shown, and no other.
    fn expect_alone(&self, agent: &Agent) -> Result<()> {
        let Self {
            line,
            place,
            object,
            found,
            wanted,
            ..
        } = *self;
        let (differences, _) = differences(agent)?;
        let [one] = differences.as_slice() else {
            anyhow::bail!("{line}: {differences:?}")
        };
        let says = |name: &str, text: Option<&str>| match text {
            Some(text) => one[name]
                .as_str()
                .is_some_and(|said| said.starts_with(text)),
            None => one[name].is_null(),
        };
        ensure!(
            one["place"] == place && one["object"] == object,
            "{line}: {one}"
        );
        ensure!(
            says("found", found) && says("wanted", wanted),
            "{line}: {one}"
        );
        Ok(())
    }
}

#[test]
fn what_was_broken_is_shown_and_nothing_else() -> Result<()> {
    let pair = TwoNodes::new("diff", VXLAN)?;
    StockNode::vxlan(9, "192.168.1.12", "02:00:00:00:00:09").put(&pair.etcd)?;
    StockNode::vxlan(10, "192.168.1.13", "02:00:00:00:00:0a").put(&pair.etcd)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(2)?;
    eventually("no difference", Duration::from_secs(5), || {
        let found = differences(&agent)?;
        ensure!(found == (Vec::new(), true), "{found:?}");
        Ok(())
    })?;
    let text = agent.cli(&["maps", "dump", "--diff"])?.stdout;
    assert_eq!(text, "leases, maps and kernel agree about 2 peers\n");

    // A running agent would repair the damage.
    agent.kill9()?;
    assert_eq!(differences(&agent)?, (Vec::new(), false));
    for damage in &DAMAGES {
        pair.a.sh(damage.line)?;
        damage.expect_alone(&agent)?;
        pair.a.sh(damage.repair)?;
    }
    assert_eq!(differences(&agent)?.0, Vec::<Value>::new());
    Ok(())
}
