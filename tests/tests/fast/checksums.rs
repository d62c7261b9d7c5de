//! An underlay that sums packets as a whole (`CHECKSUM_COMPLETE`), as where the nodes are
//! themselves in an overlay. What mode `fast` changes in a header, that sum has to follow, or the
//! pod drops the packet.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pod, TwoNodes, cluster,
    fast::{Family, FastLab},
    load::{UdpLoad, UdpRun},
    topology::Stack,
};

/// Larger than what the kernel sums while it copies (`CHECKSUM_BREAK`, 76 bytes): only then the sum
/// is used.
const PAYLOAD: usize = 600;

#[test]
fn packets_summed_as_a_whole_arrive_in_every_mode() -> Result<()> {
    let config = cluster::config(Stack::Dual, r#"{"Type":"vxlan"}"#);
    let lab = FastLab::on(TwoNodes::nested("fastsums", &config)?, &[])?;
    for mode in ["kernel", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            arrives(&lab.agents[1], [&lab.near, &lab.far], family.of(&lab.far)?, mode)
                .with_context(|| format!("mode {mode}, {family:?}"))?;
        }
    }
    Ok(())
}

fn arrives(receiver: &Agent, [near, far]: [&Pod; 2], to: IpAddr, mode: &str) -> Result<()> {
    let (errors, before) = (far.checksum_errors()?, receiver.counted("from_underlay", "replayed")?);
    let load = UdpLoad { pps: 500, duration: Duration::from_secs(3), payload: PAYLOAD };
    let report = UdpRun::start(near, far, to, load)?.wait()?;
    let errors = far.checksum_errors()? - errors;
    let replayed = receiver.counted("from_underlay", "replayed")? - before;
    println!("{mode}: {} of {} datagrams, {replayed} replayed, {errors} checksum errors", report.received, report.sent);
    ensure!(errors == 0, "{errors} checksum errors: {report:?}");
    ensure!(mode != "fast" || replayed > report.sent / 2, "{replayed} of {} were replayed", report.sent);
    report.expect_complete()
}
