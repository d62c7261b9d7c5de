//! Effects of a faulty store, an exhausted node or a busy kernel on an agent: no packet between
//! nodes that know each other is lost, and a node that joined during the fault is reached soon
//! after.

mod ground;
mod list;

use anyhow::{Result, ensure};

use self::{ground::Ground, list::FAULTS};

#[test]
fn known_peers_lose_nothing_and_new_ones_are_reached_soon_after() -> Result<()> {
    let ground = Ground::new()?;
    println!(
        "{:<44} {:>8} {:>6} {:>12}",
        "fault", "packets", "lost", "recovered in"
    );
    let mut failed = Vec::new();
    for fault in &FAULTS {
        match ground.endure(fault) {
            Ok(outcome) => {
                println!("{outcome}");
                failed.extend(outcome.complaint());
            }
            Err(error) => failed.push(format!("{}: {error:#}", fault.name)),
        }
    }
    ensure!(
        failed.is_empty(),
        "{failed:#?}\nend of the agent's log:\n{}",
        ground.agent.child().log_tail(40)
    );
    Ok(())
}
