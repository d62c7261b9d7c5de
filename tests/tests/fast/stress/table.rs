//! A flow table that is too small costs its flows the fast path now and then, and nothing else.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{fast::fast_pair_of, load::flows::ManyFlows, pins, topology::Stack};

use crate::loads::Loads;

const SIZE: usize = 1_000;

#[test]
fn ten_thousand_flows_in_a_table_of_a_thousand_lose_nothing() -> Result<()> {
    let pair = fast_pair_of("fl-table", Stack::Dual, &["--flow-table-size=1000"])?;
    for map in ["FLOWS", "FLOWS6"] {
        ensure!(pins::map(pair.sender.node(), map)?.max_entries == 1_000, "{map} is of another size");
    }
    let loads = Loads::start(&pair)?;
    pair.wait_replayed(1_000)?;
    let learned = || pair.receiver.counted("to_pod", "learned");
    let (before, start) = (learned()?, pair.replayed()?);
    let many = ManyFlows { from: 100, to: 100, rounds: 3, pps: 10_000 };
    for at in pair.far.addresses() {
        let lost = many.lost(&pair.near, &pair.far, *at)?;
        ensure!(lost == 0, "{lost} of 30000 datagrams to {at}");
    }
    let learned = learned()? - before;
    ensure!(learned > 3 * SIZE as u64, "only {learned} were learned: the table was never full");
    let dump = pair.receiver.cli_json(&["maps", "dump", "flows", "-o", "json"])?;
    let known = dump["flows"].as_array().context("no flows")?.len();
    ensure!((SIZE / 2..=2 * SIZE).contains(&known), "{known} flows of both families are known");
    println!("{learned} flows learned, {known} known");
    pair.have_replayed(start, 1_000)?;
    pair.wait_replayed(1_000)?;
    loads.expect_complete()
}
