//! Matches, watchers and targets of ebtables(8), by the name their options begin with.

use super::{
    conditions,
    entry::{Entry, depends, exact, per_packet},
};

pub(super) const ENTRIES: &[Entry] = &[
    exact("802_3", "only Ethernet II frames are replayed"),
    exact("ACCEPT", "a verdict"),
    exact("CONTINUE", "a verdict"),
    exact("DROP", "what is dropped is never learned"),
    exact("RETURN", "a verdict"),
    exact("among", "addresses are part of a flow"),
    exact("arp", "only TCP and UDP are replayed"),
    exact("arpreply", "only TCP and UDP are replayed"),
    exact("dnat", "Ethernet addresses are part of a flow"),
    depends(
        "ip",
        conditions::bridge_ip,
        "per-packet with `--ip-tos`, which has the ECN bits",
    ),
    depends(
        "ip6",
        conditions::bridge_ip,
        "per-packet with `--ip6-tclass`, which has the ECN bits",
    ),
    per_packet("limit", "counts packets"),
    per_packet("log", "logs every packet"),
    exact("mark", "marks are made by rules, which are exact or listed"),
    exact(
        "mark_m",
        "marks are made by rules, which are exact or listed",
    ),
    per_packet("nflog", "copies every packet"),
    exact("pkttype", "only frames to the host itself are replayed"),
    exact("redirect", "Ethernet addresses are part of a flow"),
    exact("snat", "Ethernet addresses are part of a flow"),
    exact("stp", "only TCP and UDP are replayed"),
    per_packet("string", "looks into the payload"),
    per_packet("ulog", "copies every packet"),
    exact("vlan", "tagged frames take the kernel's path"),
];
