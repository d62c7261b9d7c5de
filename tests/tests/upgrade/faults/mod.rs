//! A cluster of two versions of the agent under random faults: agents are killed and replaced by
//! the other version, the store fails, and other programs change the host.
//!
//! Kills, restarts and outages of the store lose no packet. What has to lose some, such as a cable
//! that is pulled, loses them only of its node, and only until the cluster has recovered. At the
//! end each node has the subnet that it had at the start, no agent has logged an error about its
//! own lease, and after `cleanup` each node is as before.
//!
//! `FLANNEL_FAULTS` (default 10) and `FLANNEL_FAULTS_SEED` choose how many, and which; a failure
//! names its seed. Without another version all nodes have the present one.

mod draw;
mod kinds;
mod member;
mod site;
mod streams;
mod tally;

use anyhow::{Context as _, Result};
use flannel_tests::{differential::random::Random, harness::variable::number};

use self::{draw::Draw, site::Site, tally::Tally};

/// In 15 s on two idle cores.
const DEFAULT: u64 = 10;
/// Faults that one set of streams endures: a stream has an end.
const ROUND: u64 = 10;

#[test]
fn kills_lose_nothing_and_every_node_keeps_its_subnet() -> Result<()> {
    let seed = number("FLANNEL_FAULTS_SEED")?.unwrap_or_else(rand::random);
    let count = number("FLANNEL_FAULTS")?.unwrap_or(DEFAULT);
    println!("{count} faults, FLANNEL_FAULTS_SEED={seed}");
    endure(count, seed).with_context(|| format!("FLANNEL_FAULTS_SEED={seed} draws the same faults"))
}

fn endure(count: u64, seed: u64) -> Result<()> {
    let mut site = Site::new(super::named_former()?)?;
    let mut draw = Draw::new(Random::new(seed));
    let mut tally = Tally::default();
    let mut left = count;
    while left > 0 {
        let round = left.min(ROUND);
        site.endure(round, &mut draw, &mut tally)?;
        left -= round;
    }
    println!("{tally}");
    tally.judge(|| site.drops())?;
    site.expect_no_errors()?;
    site.clean()
}
