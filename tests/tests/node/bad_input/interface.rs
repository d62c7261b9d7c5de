//! The external interface.

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
fn an_interface_that_is_not_there_is_named_with_those_that_are() -> Result<()> {
    let pair = TwoNodes::new("nope", VXLAN)?;
    let text = refused(&pair, &["--iface=nope", "--iface=192.0.2.7"])?;
    for part in [
        "no interface fits what was asked for:\n  nope: no such interface\n  192.0.2.7: no interface has this address",
        "pass --iface with the name or a local address of one of:\n",
        "  eth0 (up): 192.168.1.11",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    Ok(())
}

#[test]
fn an_interface_without_an_address_is_refused() -> Result<()> {
    let pair = TwoNodes::new("bare", VXLAN)?;
    pair.a.sh("ip link add bare0 type bridge")?;
    let text = refused(&pair, &["--iface=bare0"])?;
    assert!(text.contains("bare0: no usable IPv4 address"), "{text}");
    Ok(())
}

#[test]
fn a_host_without_a_default_route_needs_the_interface_option() -> Result<()> {
    let pair = TwoNodes::new("route", VXLAN)?;
    let text = refused(&pair, &[])?;
    for part in ["there is no IPv4 default route; pass --iface", "  eth0 (up): 192.168.1.11"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    Ok(())
}

#[test]
fn a_public_address_that_is_not_local_needs_an_interface() -> Result<()> {
    let pair = TwoNodes::new("public", VXLAN)?;
    let text = refused(&pair, &["--public-ip=192.0.2.7"])?;
    assert!(text.contains("--public-ip 192.0.2.7 without --iface has to be an address of this host"), "{text}");
    Ok(())
}
