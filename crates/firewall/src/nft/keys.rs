//! Numbers of nf_tables and the names that nft(8) has for them. Pure.
//!
//! The numbers are those of include/uapi/linux/netfilter/nf_tables.h of Linux 6.12:
//! <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netfilter/nf_tables.h>.

/// `NFT_META_*`.
const META: [&str; 38] = [
    "length",
    "protocol",
    "priority",
    "mark",
    "iif",
    "oif",
    "iifname",
    "oifname",
    "iiftype",
    "oiftype",
    "skuid",
    "skgid",
    "nftrace",
    "rtclassid",
    "secmark",
    "nfproto",
    "l4proto",
    "ibrname",
    "obrname",
    "pkttype",
    "cpu",
    "iifgroup",
    "oifgroup",
    "cgroup",
    "random",
    "ipsec",
    "iifkind",
    "oifkind",
    "ibrpvid",
    "ibrvproto",
    "time",
    "day",
    "hour",
    "sdif",
    "sdifname",
    "broute",
    // The kernel keeps this number for itself.
    "iiftype",
    "ibrhwaddr",
];
/// `NFT_CT_*`.
const CT: [&str; 24] = [
    "state",
    "direction",
    "status",
    "mark",
    "secmark",
    "expiration",
    "helper",
    "l3proto",
    "saddr",
    "daddr",
    "protocol",
    "proto-src",
    "proto-dst",
    "label",
    "packets",
    "bytes",
    "avgpkt",
    "zone",
    "event",
    "ip saddr",
    "ip daddr",
    "ip6 saddr",
    "ip6 daddr",
    "id",
];
/// `NFT_OBJECT_*`, as the statements that refer to them.
const OBJECTS: [&str; 11] = [
    "object",
    "counter object",
    "quota",
    "ct helper",
    "limit",
    "ct count",
    "tunnel",
    "ct timeout",
    "secmark",
    "ct expectation",
    "synproxy",
];
/// `NF_INET_*`.
const INET_HOOKS: [&str; 6] = [
    "prerouting",
    "input",
    "forward",
    "output",
    "postrouting",
    "ingress",
];
/// `NF_ARP_*`.
const ARP_HOOKS: [&str; 3] = ["input", "output", "forward"];
/// `NF_NETDEV_*`.
const NETDEV_HOOKS: [&str; 2] = ["ingress", "egress"];

/// `NFPROTO_*`.
pub(super) const INET: u8 = 1;
pub(super) const IPV4: u8 = 2;
pub(super) const ARP: u8 = 3;
pub(super) const NETDEV: u8 = 5;
pub(super) const BRIDGE: u8 = 7;
pub(super) const IPV6: u8 = 10;

/// The name of a family of nf_tables (`NFPROTO_*`); `None` for one that nft does not know.
pub const fn family(number: u8) -> Option<&'static str> {
    Some(match number {
        INET => "inet",
        IPV4 => "ip",
        ARP => "arp",
        NETDEV => "netdev",
        BRIDGE => "bridge",
        IPV6 => "ip6",
        _ => return None,
    })
}

/// The name of a hook of a family.
pub(super) fn hook(family: u8, number: u32) -> &'static str {
    let names: &[&str] = match family {
        ARP => &ARP_HOOKS,
        NETDEV => &NETDEV_HOOKS,
        _ => &INET_HOOKS,
    };
    usize::try_from(number)
        .ok()
        .and_then(|number| names.get(number))
        .copied()
        .unwrap_or("?")
}

/// The field of a `meta` expression.
pub(super) fn meta(key: u64) -> String {
    named("meta", &META, key)
}

/// The field of a `ct` expression.
pub(super) fn ct(key: u64) -> String {
    named("ct", &CT, key)
}

/// The statement of a reference to an object.
pub(super) fn object(kind: u64) -> String {
    let name = usize::try_from(kind)
        .ok()
        .and_then(|kind| OBJECTS.get(kind));
    name.map_or_else(|| format!("object {kind}"), |name| (*name).to_owned())
}

fn named(kind: &str, names: &[&str], key: u64) -> String {
    match usize::try_from(key).ok().and_then(|key| names.get(key)) {
        Some(name) => format!("{kind} {name}"),
        None => format!("{kind} {key}"),
    }
}

/// The field of an `exthdr` expression: an extension header or an option.
pub(super) fn option(op: u64, kind: u64) -> String {
    match op {
        0 => format!("exthdr {kind}"),
        1 => format!("tcp option {}", tcp_option(kind)),
        2 => format!("ip option {kind}"),
        3 => format!("sctp chunk {kind}"),
        4 => format!("dccp option {kind}"),
        _ => "exthdr".to_owned(),
    }
}

/// Options by the numbers of <https://www.iana.org/assignments/tcp-parameters>, as nft names them.
const fn tcp_option(kind: u64) -> &'static str {
    match kind {
        0 => "eol",
        1 => "nop",
        2 => "maxseg",
        3 => "window",
        4 => "sack-perm",
        5 => "sack",
        8 => "timestamp",
        19 => "md5sig",
        30 => "mptcp",
        34 => "fastopen",
        _ => "raw",
    }
}

/// The names of the states in a bit mask of `ct state` (`NF_CT_STATE_BIT`).
pub(super) fn states(bits: u64) -> Vec<&'static str> {
    let names = [
        (1, "invalid"),
        (2, "established"),
        (4, "related"),
        (8, "new"),
        (64, "untracked"),
    ];
    names
        .into_iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_names_of_nft() {
        assert_eq!(
            (meta(0).as_str(), meta(16).as_str()),
            ("meta length", "meta l4proto")
        );
        assert_eq!(
            (meta(37).as_str(), meta(99).as_str()),
            ("meta ibrhwaddr", "meta 99")
        );
        assert_eq!((ct(0).as_str(), ct(23).as_str()), ("ct state", "ct id"));
        assert_eq!(
            (object(4).as_str(), object(10).as_str(), object(11).as_str()),
            ("limit", "synproxy", "object 11")
        );
        assert_eq!(option(1, 5), "tcp option sack");
        assert_eq!(
            (hook(INET, 2), hook(ARP, 0), hook(NETDEV, 0), hook(IPV4, 9)),
            ("forward", "input", "ingress", "?")
        );
        assert_eq!(states(9), ["invalid", "new"]);
    }
}
