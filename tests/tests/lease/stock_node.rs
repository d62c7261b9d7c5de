//! A stock node and ours in one cluster.

use std::time::Duration;

use anyhow::Result;
use flannel_tests::{Mixed, cluster::topology::Stack, load::udp_stream};

#[test]
fn a_stock_node_and_ours_talk_both_ways_in_every_mode() -> Result<()> {
    let Mixed {
        agent,
        ours,
        stocks,
        nodes: _nodes,
    } = Mixed::new("mixed", Stack::V4, &[])?;
    for mode in ["kernel", "encap"] {
        agent.set_mode(mode)?;
        ours.ping(stocks.ip())?;
        stocks.ping(ours.ip())?;
        let before = agent.counted("to_tunnel", "encapsulated")?;
        for (from, to) in [(&ours, &stocks), (&stocks, &ours)] {
            let report = udp_stream(from, to, 1000, Duration::from_secs(1))?;
            assert_eq!(
                (report.lost_count(), report.duplicated),
                (0, 0),
                "{mode}: {report:?}"
            );
        }
        let encapsulated = agent.counted("to_tunnel", "encapsulated")? - before;
        assert_eq!(
            encapsulated > 0,
            mode == "encap",
            "{encapsulated} packets encapsulated in mode {mode}"
        );
    }
    assert!(agent.counted("from_underlay", "tunnel_good")? > 0);
    Ok(())
}
