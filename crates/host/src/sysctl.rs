//! The kernel settings the datapath depends on, read from `/proc/sys/net` of this network
//! namespace.

use std::{fs, io};

use crate::family::Family;

/// The kernel's default range (`inet_init_net()` in [net/ipv4/af_inet.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/af_inet.c)), for a file that cannot
/// be read or parsed.
const DEFAULT_PORTS: (u16, u16) = (32768, 60999);

/// `net.ipv4.ip_local_port_range`: the range of the tunnel's source ports over IPv4 and IPv6, both
/// ends included by name, the upper one excluded by the kernel's own formula (`udp_flow_src_port()`
/// in [include/net/udp.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/udp.h)).
pub fn local_ports() -> (u16, u16) {
    match read("/proc/sys/net/ipv4/ip_local_port_range").map(|text| parse_ports(&text)) {
        Ok(Some(range)) => range,
        _ => DEFAULT_PORTS,
    }
}

/// The setting by which this node forwards packets of a family. Stock flannel leaves it to the
/// container runtime.
pub const fn forwarding(family: Family) -> &'static str {
    match family {
        Family::V4 => "net/ipv4/ip_forward",
        Family::V6 => "net/ipv6/conf/all/forwarding",
    }
}

/// Returns true if this node forwards IPv6 packets that arrive by `device`: packets of any device,
/// or (kernel 6.17) those of this one.
pub fn forwards_ipv6_from(device: &str) -> bool {
    is_on(forwarding(Family::V6)) || is_on(&format!("net/ipv6/conf/{device}/force_forwarding"))
}

/// The setting by which iptables sees packets of a family that a bridge passes on; it exists with
/// the module `br_netfilter`.
pub const fn bridge_filtering(family: Family) -> &'static str {
    match family {
        Family::V4 => "net/bridge/bridge-nf-call-iptables",
        Family::V6 => "net/bridge/bridge-nf-call-ip6tables",
    }
}

/// Returns true if a setting is 1; false also if it cannot be read.
pub fn is_on(setting: &str) -> bool {
    read(&format!("/proc/sys/{setting}")).is_ok_and(|text| text.trim() == "1")
}

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(path)
}

fn parse_ports(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next()?, numbers.next()?) {
        (Ok(low), Ok(high)) if low < high => Some((low, high)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_read_as_the_kernel_prints_them() {
        assert_eq!(parse_ports("32768\t60999\n"), Some((32768, 60999)));
        for bad in ["", "1", "9 1", "x y", "0 70000"] {
            assert_eq!(parse_ports(bad), None, "{bad:?}");
        }
    }
}
