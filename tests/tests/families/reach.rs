//! Every pod reaches every other, whatever the families.

use anyhow::{Result, ensure};
use flannel_tests::{cluster::Cluster, load::iperf::tcp_stream, topology::Stack};

const VXLAN: &str = r#"{"Type":"vxlan"}"#;

fn vxlan_connects(name: &str, stack: Stack) -> Result<()> {
    let cluster = Cluster::new(name, stack, VXLAN)?;
    for mode in ["kernel", "encap"] {
        cluster.set_mode(mode)?;
        cluster.wait_connected()?;
        let [near, _, far] = &cluster.pods;
        for address in far.addresses() {
            let stream = tcp_stream(near, far, *address, 1, None)?;
            ensure!(stream.bits_per_second > 0.0, "{mode}: {stream:?}");
        }
    }
    Ok(())
}

#[test]
fn ipv6_alone_connects_all_pods() -> Result<()> {
    vxlan_connects("six", Stack::V6)
}

#[test]
fn both_families_connect_all_pods() -> Result<()> {
    vxlan_connects("dual", Stack::Dual)
}
