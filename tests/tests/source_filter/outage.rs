//! The guard while the store or the agent is away.

use std::path::Path;

use anyhow::{Result, ensure};
use flannel_common::abi::node::HEARTBEAT_LIMIT_NS;
use flannel_datapath::{PinRoot, kernel::clock, maps::ConfigMap};
use flannel_tests::eventually;

use super::{Guarded, SOON, other};

/// Sets the agent's last heartbeat back by this time.
fn age_heartbeat(lab: &Guarded, before_ns: u64) -> Result<()> {
    lab.pair.a.enter(move || -> Result<()> {
        let mut config = ConfigMap::open(&PinRoot::new(Path::new("/sys/fs/bpf/flannel")))?;
        Ok(config.write_heartbeat(clock::now_ns() - before_ns)?)
    })?
}

/// During an outage of the store, nodes may join that the agent does not know.
#[test]
fn nothing_is_refused_while_the_store_is_away_and_a_node_that_joins_is_let_in() -> Result<()> {
    let lab = Guarded::new("nostore", &[])?;
    lab.wait_modes("enforce", "audit")?;
    lab.expect(false, "a stranger")?;
    lab.pair.etcd.stop()?;
    lab.wait_modes("audit", "audit")?;
    let status = lab.agent.status()?;
    let reason = &status["guard"]["outer"]["reason"];
    ensure!(
        reason == "the store is not in sync, so peers may be unknown",
        "{}",
        status["guard"]
    );
    lab.expect(true, "without a store")?;
    lab.pair.etcd.start()?;
    lab.wait_modes("enforce", "audit")?;
    lab.expect(false, "a stranger, once the store is back")?;
    other().put(&lab.pair.etcd)?;
    eventually("the packets of a node that joined", SOON, || {
        lab.expect(true, "with a lease")
    })?;
    for base in ["10.244.8.0", "fd00:10:244:8::"] {
        lab.pod.wait_ping(base.parse()?)?;
    }
    lab.pair.etcd.delete(&other().key())?;
    lab.agent.wait_peers(0)?;
    lab.expect(
        true,
        "a moment after its lease went, which it may be about to acquire again",
    )
}

#[test]
fn an_agent_that_is_gone_refuses_for_a_minute_and_can_be_switched_off() -> Result<()> {
    let lab = Guarded::new("noagent", &[])?;
    lab.wait_modes("enforce", "audit")?;
    lab.agent.kill9()?;
    lab.expect(false, "just after the agent's death")?;
    age_heartbeat(&lab, HEARTBEAT_LIMIT_NS + 1_000_000_000)?;
    lab.expect(true, "a minute later")?;
    let text = lab.agent.cli(&["guard", "show"])?.stdout;
    ensure!(
        text.contains("no agent for a minute: nothing is refused"),
        "{text}"
    );
    age_heartbeat(&lab, 0)?;
    lab.expect(false, "maps that are vouched for")?;
    let set = lab.agent.cli(&["guard", "set", "off"])?.stdout;
    ensure!(set.starts_with("outer   off (chosen at run time)"), "{set}");
    lab.expect(true, "switched off without an agent")?;
    let set = lab.agent.cli(&["guard", "set", "enforce"])?.stdout;
    ensure!(
        set.contains(
            "outer   off, and enforce (chosen at run time) as soon as an agent sees to it"
        ),
        "{set}"
    );
    lab.expect(true, "more is for an agent to put in force")?;
    lab.agent.restart()?;
    lab.wait_modes("enforce", "enforce")?;
    lab.expect(false, "the choice outlives the agent")
}
