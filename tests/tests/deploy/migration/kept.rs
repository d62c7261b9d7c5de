//! There and back with the device kept, as docs/guides/migration.md describes it: no packet is lost
//! at any moment.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{Agent, agent::snapshot::Snapshot, eventually, kernel::hooks::misplaced};

use super::{
    traffic::{Connections, Phase},
    world::World,
};

#[test]
fn there_and_back_with_the_device_kept_loses_nothing() -> Result<()> {
    let mut world = World::new("rehkept")?;
    let mut connections = Connections::open(&world)?;
    let (before, kept) = (Snapshot::of(&world.net.a)?, world.kept()?);

    let (phase, agent) = Phase::of(&mut world, "to the agent", |world| world.upgrade())?;
    phase.lost_nothing()?;
    connections.go_on(&world)?;
    assert_eq!(world.kept()?, kept, "taken over as it is");
    assert_eq!(misplaced(&world.net.a)?, [""; 0]);

    let (phase, ()) = Phase::of(&mut world, "a peer moves", |world| {
        world.move_peer("192.168.1.22")?;
        connections.go_on(world)
    })?;
    phase.lost_nothing_but_to_the_mover()?;
    let moved = world.kept()?;
    ensure!(
        moved.tunnel.matching(&["fdb", "192.168.1.22"]).len() == 1,
        "{moved:?}"
    );

    let (phase, ()) = Phase::of(&mut world, "back to stock", |world| {
        agent.cli(&["datapath", "set", "kernel"])?;
        agent.cli(&["guard", "set", "off"])?;
        agent.sigterm_and_wait()?;
        world.stock.start(&world.etcd)?;
        connections.go_on(world)
    })?;
    phase.lost_nothing()?;
    let back = world.kept()?;
    assert_eq!(
        (&back.device, &back.tunnel, &back.lease),
        (&moved.device, &moved.tunnel, &moved.lease)
    );

    let (phase, ()) = Phase::of(&mut world, "the peer moves on", |world| {
        world.move_peer("192.168.1.32")?;
        world.apply_leases(&[&world.stock])?;
        connections.go_on(world)
    })?;
    phase.lost_nothing_but_to_the_mover()?;

    let (phase, ()) = Phase::of(&mut world, "what is left goes", |world| {
        let did = agent.cli(&["cleanup", "--keep-network"])?.stdout;
        ensure!(
            did.contains("nf_conntrack_tcp_timeout_max_retrans at 432000 (300 before) because"),
            "{did}"
        );
        connections.go_on(world)
    })?;
    phase.lost_nothing()?;
    connections.end()?;
    wait_conntrack_set_back(&world, &agent)?;
    // Where the peer is now is all that is new.
    let changes = before.changes(&Snapshot::of(&world.net.a)?);
    let of_peer =
        |line: &str| line[2..].starts_with("fdb: ") || line[2..].starts_with("neighbour: ");
    ensure!(
        changes.lines().all(of_peer) && changes.contains("192.168.1.32"),
        "{changes}"
    );
    Ok(())
}

/// Once the connections are gone, cleanup leaves conntrack as it was too.
fn wait_conntrack_set_back(world: &World, agent: &Agent) -> Result<()> {
    eventually(
        "sysctls of conntrack set back",
        Duration::from_secs(15),
        || {
            agent.cli(&["cleanup", "--keep-network"])?;
            let sysctls = world
                .net
                .a
                .sh("sysctl -n net.netfilter.nf_conntrack_tcp_timeout_max_retrans")?
                .stdout;
            ensure!(sysctls == "300\n", "{sysctls}");
            Ok(())
        },
    )
}
