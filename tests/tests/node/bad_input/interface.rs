//! Settings of the external interface with which there never is one: each ends the start.

use anyhow::Result;
use flannel_tests::{TwoNodes, cluster::VXLAN};

fn refused(pair: &TwoNodes, flags: &[&str]) -> Result<String> {
    let mut options = pair.options()?;
    options.flags.retain(|flag| !flag.starts_with("--iface"));
    let (code, text) = pair.a.agent(options.flags(flags))?.wait_end()?;
    assert_eq!(code, 1, "{text}");
    Ok(text)
}

#[test]
fn a_device_of_pods_by_its_name_is_refused_with_those_that_can_be_named() -> Result<()> {
    let pair = TwoNodes::new("ofpods", VXLAN)?;
    pair.a.sh("ip link add cni0 type bridge")?;
    let text = refused(&pair, &["--iface=cni0", "--iface=fd00::7"])?;
    for part in [
        "no interface fits what was asked for:\n  cni0: cni0 is a bridge of pods, and not an \
         external interface\n",
        "  fd00::7: not an IPv4 address\n",
        "pass --iface with the name or a local address of one of:\n",
        "  eth0 (up): 192.168.1.11",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    Ok(())
}
