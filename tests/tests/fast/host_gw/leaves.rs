//! The mode leaves as it came, and `cleanup` leaves nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    TwoNodes,
    agent::snapshot::Snapshot,
    cluster::{HOST_GW, config, topology::Stack},
    eventually,
    fast::FLAGS,
};

use super::{FOLLOWED, ask, on_external};

fn comes_and_goes(name: &str, attach: &str) -> Result<()> {
    let nodes = TwoNodes::with(name, Stack::Dual, &config(Stack::Dual, HOST_GW))?;
    flannel_tests::cluster::pair::wait_dad(&nodes.a)?;
    let before = Snapshot::of(&nodes.a)?;
    let agent = nodes.a.ready_agent(
        nodes
            .options()?
            .flag(FLAGS[1])
            .flag("--datapath=kernel")
            .flag(attach),
    )?;
    assert_eq!(
        on_external(&agent)?,
        [""; 0],
        "nothing to do in mode kernel"
    );
    for (mode, expected) in [
        ("fast", &FOLLOWED[..]),
        ("kernel", &[]),
        ("fast", &FOLLOWED),
    ] {
        ask(&agent, mode, mode, None)?;
        eventually(
            &format!("programs of mode {mode}"),
            Duration::from_secs(5),
            || {
                let found = on_external(&agent)?;
                ensure!(found == expected, "{found:?}");
                Ok(())
            },
        )?;
    }
    agent.sigterm_and_wait()?;
    assert_eq!(
        on_external(&agent)?,
        FOLLOWED,
        "a graceful exit leaves the datapath running"
    );
    agent.cli(&["cleanup"])?;
    eventually("a clean node", Duration::from_secs(3), || {
        let changes = before.changes(&Snapshot::of(&nodes.a)?);
        ensure!(changes.is_empty(), "{changes}");
        Ok(())
    })
}

#[test]
fn by_tcx() -> Result<()> {
    if flannel_tests::kernel::hooks::lacks_tcx("attachment by TCX") {
        return Ok(());
    }
    comes_and_goes("gw-tcx", "--attach=tcx")
}

#[test]
fn by_clsact() -> Result<()> {
    comes_and_goes("gw-clsact", "--attach=clsact")
}
