//! The way back by `cleanup`, after which stock flannel recreates everything. There is a gap, and
//! connections survive it.

use anyhow::{Result, ensure};
use flannel_tests::agent::snapshot::Snapshot;

use super::{
    traffic::{Connections, Phase},
    world::World,
};

#[test]
fn back_by_cleanup_leaves_stocks_own_and_connections_survive() -> Result<()> {
    let mut world = World::new("rehclean")?;
    let mut connections = Connections::open(&world)?;
    let before = Snapshot::of(&world.net.a)?;
    let device = world.kept()?.device;
    let (phase, agent) = Phase::of(&mut world, "to the agent", |world| world.upgrade())?;
    phase.lost_nothing()?;
    let (phase, ()) = Phase::of(&mut world, "a peer moves", |world| {
        world.move_peer("192.168.1.22")?;
        connections.go_on(world)
    })?;
    phase.lost_nothing_but_to_the_mover()?;

    Phase::of(&mut world, "by cleanup to stock", |world| {
        agent.cli(&["datapath", "set", "kernel"])?;
        agent.sigterm_and_wait()?;
        agent.cli(&["cleanup"])?;
        let left =
            world.net.a.sh("ip -br link")?.stdout + &world.net.a.sh("nft list ruleset")?.stdout;
        ensure!(!left.to_lowercase().contains("flannel"), "{left}");
        world.stock.start(&world.etcd)?;
        world.apply_leases_to_others()?;
        connections.go_on(world)
    })?;
    let (phase, ()) = Phase::of(&mut world, "stock again", |world| connections.go_on(world))?;
    phase.lost_nothing()?;
    connections.end()?;
    assert_ne!(world.kept()?.device, device, "a device of stock's own");
    let changes = before.changes(&Snapshot::of(&world.net.a)?);
    ensure!(
        changes.lines().all(|line| line.contains("flannel.1")),
        "{changes}"
    );
    Ok(())
}
