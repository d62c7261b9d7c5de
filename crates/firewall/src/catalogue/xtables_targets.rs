//! Targets of iptables and ip6tables: all of iptables-extensions(8), and the built-in ones.

use super::{
    conditions,
    entry::{Entry, depends, exact, per_packet, per_tunnel_packet},
};

pub(super) const ENTRIES: &[Entry] = &[
    exact("ACCEPT", "a verdict"),
    per_packet("AUDIT", "reports every packet"),
    exact("CHECKSUM", "completes a checksum, which changes no meaning"),
    exact("CLASSIFY", "the priority is part of a flow"),
    exact("CLUSTERIP", "for packets to the host itself"),
    exact("CONNMARK", "the mark is the connection's"),
    exact("CONNSECMARK", "the mark is the connection's"),
    exact("CT", "it decides about connections"),
    exact("DNAT", "conntrack asks once for each connection"),
    exact("DNPT", "addresses are part of a flow"),
    exact("DROP", "what is dropped is never learned"),
    exact("DSCP", "DSCP is part of a flow"),
    per_packet("ECN", "changes flags of some packets"),
    exact("HL", "the hop limit is part of a flow"),
    per_tunnel_packet(
        "HMARK",
        "a hash of addresses and ports; tunnel packets differ in their source port",
    ),
    per_packet("IDLETIMER", "every packet starts it again"),
    per_packet("LED", "shows every packet"),
    per_packet("LOG", "logs every packet"),
    exact("MARK", "the mark is part of a flow"),
    exact("MASQUERADE", "conntrack asks once for each connection"),
    exact("NETMAP", "conntrack asks once for each connection"),
    per_packet("NFLOG", "copies every packet"),
    exact("NFQUEUE", "what userspace judges is never learned"),
    exact("NOTRACK", "untracked flows are learned unchanged"),
    exact("QUEUE", "what userspace judges is never learned"),
    per_packet("RATEEST", "measures the rate"),
    exact("REDIRECT", "conntrack asks once for each connection"),
    exact("REJECT", "what is dropped is never learned"),
    exact("RETURN", "a verdict"),
    exact(
        "SECMARK",
        "the mark decides on the host, and is made by rules",
    ),
    depends(
        "SET",
        conditions::ipset_target,
        "the first packet adds or deletes; per-packet with `--add-set` unless `--timeout 0` says \
         that the element stays",
    ),
    exact("SNAT", "conntrack asks once for each connection"),
    exact("SNPT", "addresses are part of a flow"),
    exact(
        "SYNPROXY",
        "connections with changed sequence numbers are not replayed",
    ),
    exact("TCPMSS", "changes SYN packets alone"),
    depends(
        "TCPOPTSTRIP",
        conditions::option_strip,
        "per-packet unless the options are those of SYN packets",
    ),
    per_packet("TEE", "copies every packet"),
    depends(
        "TOS",
        conditions::tos_target,
        "DSCP is part of a flow; per-packet where it writes ECN bits",
    ),
    exact("TPROXY", "packets to the host itself are not replayed"),
    per_packet("TRACE", "reports every packet"),
    exact("TTL", "TTL is part of a flow"),
    per_packet("ULOG", "copies every packet"),
];
