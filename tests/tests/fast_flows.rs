//! Mode `fast`: which packets are replayed, and that nothing else changes.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;
use flannel_tests::{
    bare::BarePair,
    load::rr::{Protocol, rr},
};

#[test]
fn flows_are_replayed_after_their_first_packets() -> Result<()> {
    let pair = BarePair::new("fastflow")?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let before = [pair.a.counts()?, pair.b.counts()?];
        let report = rr(&pair.near, &pair.far, pair.far.ip(), protocol, Duration::from_secs(3))?;
        println!("{protocol:?} {report:?}");
        println!("a: {:#?}", pair.a.counts_since(&before[0])?);
        println!("b: {:#?}", pair.b.counts_since(&before[1])?);
    }
    let _: Option<SocketAddr> = None;
    Ok(())
}
