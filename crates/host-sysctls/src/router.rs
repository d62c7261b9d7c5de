//! Devices whose default route is from a router advertisement.
//!
//! A host that forwards is a router, and takes advertisements only from devices with
//! [`accept_ra`](https://docs.kernel.org/networking/ip-sysctl.html) 2. As forwarding is switched
//! on, the kernel removes the routes that the others gave (`rt6_purge_dflt_routers()` in
//! [net/ipv6/route.c](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/route.c), 5.4 to 6.18).
//! So that setting comes first.

use std::{collections::BTreeSet, fs};

use flannel_host::sysctl_record;

use super::need::{Need, Rule, Scope};

/// The IPv6 routes of this network namespace.
const ROUTES: &str = "/proc/net/ipv6_route";
/// `RTF_ADDRCONF` and `RTF_DEFAULT` of [include/uapi/linux/ipv6_route.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/ipv6_route.h).
const ADVERTISED: u32 = 0x0004_0000 | 0x0001_0000;

/// The settings that keep the default routes of this host while it forwards.
pub(super) fn needs() -> Vec<Need> {
    let routes = fs::read_to_string(ROUTES).unwrap_or_default();
    let need = |device: &str| Need {
        name: sysctl_record::name_of(&format!("net/ipv6/conf/{device}/accept_ra")),
        value: 2,
        rule: Rule::Exact,
        effect: format!("the default route by {device} would go with IPv6 forwarding"),
        is_vital: false,
        scope: Scope::OtherDevice,
    };
    devices(&routes).into_iter().map(need).collect()
}

/// The devices of default routes from advertisements, in the text of [`ROUTES`]: destination, its
/// prefix length, source, its prefix length, gateway, metric, references, use, flags, device.
fn devices(routes: &str) -> BTreeSet<&str> {
    routes.lines().filter_map(device_of).collect()
}

fn device_of(line: &str) -> Option<&str> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
    let is_default = *fields.get(1)? == "00" && flags & ADVERTISED == ADVERTISED;
    is_default.then_some(*fields.get(9)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_with_an_advertised_default_route_are_found() {
        const NONE: &str = "00000000000000000000000000000000";
        const GATEWAY: &str = "fe800000000000000000000000000001";
        let line = |length: &str, flags: &str, device: &str| {
            format!(
                "{NONE} {length} {NONE} 00 {GATEWAY} 00000400 00000001 00000000 {flags} {device}\n"
            )
        };
        let routes = line("00", "00450003", "eth0")
            + &line("00", "00000003", "eth1")
            + &line("40", "00450003", "eth2");
        assert_eq!(devices(&routes), BTreeSet::from(["eth0"]));
    }
}
