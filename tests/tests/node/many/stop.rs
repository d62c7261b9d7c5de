//! The end of the agent is not the end of the datapath.

use std::time::Duration;

use anyhow::Result;
use flannel_tests::{
    TwoNodes,
    agent::snapshot::Snapshot,
    cluster::VXLAN,
    eventually,
    load::{UdpLoad, UdpRun},
};

#[test]
fn sigterm_ends_with_0_and_leaves_the_datapath_up() -> Result<()> {
    let pair = TwoNodes::new("term", VXLAN)?;
    let [a, _b] = pair.agents()?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let before = Snapshot::of(&pair.a)?;
    let load = UdpLoad {
        pps: 5000,
        duration: Duration::from_mins(1),
        payload: 64,
    };
    let run = UdpRun::start(&near, &far, far.ip(), load)?;
    let taken =
        || anyhow::Ok(a.counted("to_tunnel", "encapsulated")? + a.counted("from_pod", "replayed")?);
    let busy = taken()?;
    a.sigterm_and_wait()?;
    let stopped = taken()?;
    // The programs go on: far more packets than the two a second that look at the path.
    eventually(
        "packets of a node without an agent",
        Duration::from_secs(10),
        || taken().ok().filter(|count| *count > stopped + 5000),
    )?;
    let report = run.stop()?;
    assert!(stopped > busy && report.sent > 5000, "{report:?}");
    assert_eq!(
        (report.lost_count(), report.duplicated),
        (0, 0),
        "{report:?}"
    );
    assert_eq!(before.changes(&Snapshot::of(&pair.a)?), "");
    assert!(
        !pair.a.outside_path("/run/flannel/agent.sock").exists(),
        "no socket that nobody answers"
    );
    assert!(pair.a.outside_path("/run/flannel/subnet.env").exists());
    Ok(())
}

#[test]
fn sigint_and_sigterm_end_an_agent_that_still_waits() -> Result<()> {
    use nix::sys::signal::Signal;
    let pair = TwoNodes::unconfigured("waiting")?;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let agent = pair.a.agent(pair.options()?)?;
        agent.wait_log(&["waiting for the network configuration"])?;
        agent.child().signal(signal)?;
        agent.child().wait_success(Duration::from_secs(10))?;
        agent.wait_log(&[
            "stopping; the datapath goes on without the agent",
            signal.as_str(),
        ])?;
    }
    Ok(())
}
