//! A flow table that is too small costs its flows the fast path now and then, and nothing else.

use std::path::Path;

use anyhow::{Result, ensure};
use flannel_datapath::{Maps, PinRoot};
use flannel_tests::{
    agent::pins, cluster::topology::Stack, fast::fast_pair_of, load::flows::ManyFlows,
};

use super::loads::Loads;

const SIZE: usize = 1_000;
/// The agent's pins, in a node.
const PINS: &str = "/sys/fs/bpf/flannel";

#[test]
fn ten_thousand_flows_in_a_table_of_a_thousand_lose_nothing() -> Result<()> {
    let pair = fast_pair_of("fl-table", Stack::Dual, &["--flow-table-size=1000"])?;
    for map in ["FLOWS", "FLOWS6"] {
        ensure!(
            pins::map(pair.sender.node(), map)?.max_entries == 1_000,
            "{map} is of another size"
        );
    }
    let loads = Loads::start(&pair)?;
    pair.wait_replayed(1_000)?;
    let learned = || pair.receiver.counted("to_pod", "learned");
    let (before, start) = (learned()?, pair.replayed()?);
    // Long enough for flows to be refreshed: until then they are on probation.
    let many = ManyFlows {
        from: 100,
        to: 100,
        rounds: 10,
        pps: 10_000,
    };
    for at in pair.far.addresses() {
        let lost = many.lost(&pair.near, &pair.far, *at)?;
        ensure!(lost == 0, "{lost} of 100000 datagrams to {at}");
    }
    let learned = learned()? - before;
    ensure!(
        learned > 3 * SIZE as u64,
        "only {learned} were learned: the table was never full"
    );
    let maps = pair
        .receiver
        .node()
        .enter(|| Maps::open(&PinRoot::new(Path::new(PINS))))??;
    let known = maps.flows.table().count() + maps.flows6.table().count();
    ensure!(
        (SIZE / 2..=2 * SIZE).contains(&known),
        "{known} flows of both families are in their tables"
    );
    println!("{learned} flows learned, {known} in the tables");
    pair.have_replayed(start, 1_000)?;
    pair.wait_replayed(1_000)?;
    loads.expect_complete()
}
