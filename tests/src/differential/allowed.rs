//! The differences between the modes that are by design. The page
//! docs/reference/fast-differences.md has the same table.

/// A difference by design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Its name.
    pub name: &'static str,
    /// Its limits.
    pub bound: &'static str,
    /// The property of the design it follows from.
    pub reason: &'static str,
}

/// A rule that changes during a flow.
pub const REFRESH: Allowed = Allowed {
    name: "refresh interval",
    bound: "2.5 s after the change; at once for rules of nftables",
    reason: "a known flow is seen again by the kernel every two seconds, give or take a quarter",
};

/// Counters of rules.
pub const COUNTERS: Allowed = Allowed {
    name: "counters",
    bound: "at most what mode `kernel` counts; equal for rules that drop, and for new connections \
        that are answered",
    reason: "replayed packets pass no rule",
};

/// Copied and logged packets.
pub const COPIES: Allowed = Allowed {
    name: "copies",
    bound: "TEE, `dup`, NFLOG, LOG: at least one packet of a flow every 2.5 s, at most what mode \
        `kernel` copies",
    reason: "the rule meets the packets that the kernel sees",
};

/// Packets a rule about single packets would have dropped.
pub const VERDICTS: Allowed = Allowed {
    name: "per-packet verdicts",
    bound: "flows of rules with a per-packet match: more packets may pass than in mode `kernel`, \
        never fewer",
    reason: "the packet that was seen last decides for those of the next two seconds",
};

/// Packets that a rule about single packets would have changed.
pub const CHANGES: Allowed = Allowed {
    name: "per-packet changes",
    bound: "flows of rules with a per-packet match: a packet leaves as another one of its flow in \
        mode `kernel`",
    reason: "the packet that was seen last decides for those of the next two seconds",
};

/// A connection that was reset.
pub const RESET: Allowed = Allowed {
    name: "state after a reset",
    bound: "conntrack lists ESTABLISHED instead of CLOSE, with the timeout of CLOSE",
    reason: "conntrack has not seen the numbers before the reset",
};

/// Outer identifications.
pub const IDENTIFICATION: Allowed = Allowed {
    name: "outer identification",
    bound: "packets of two CPUs may use the same one at a time; those of one CPU do not repeat \
        within 65,536 packets",
    reason: "each CPU counts its own packets, the kernel counts those to a peer and skips ahead at \
        random",
};

/// Order of arrival.
pub const ORDER: Allowed = Allowed {
    name: "order",
    bound: "one packet in four at most arrives behind a later one of its flow",
    reason: "a replayed packet overtakes one before it that takes the kernel's path and waits in \
        its queues",
};

/// All of them, in the order of the page.
pub const ALL: [Allowed; 8] = [
    REFRESH,
    COUNTERS,
    COPIES,
    VERDICTS,
    CHANGES,
    RESET,
    IDENTIFICATION,
    ORDER,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_same_table() {
        let page = include_str!("../../../docs/reference/fast-differences.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .skip_while(|line| !line.starts_with("| difference"))
            .skip(2)
            .take_while(|line| line.starts_with("| "))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let expected: Vec<Vec<&str>> = ALL
            .iter()
            .map(|row| vec![row.name, row.bound, row.reason])
            .collect();
        assert_eq!(rows, expected);
    }
}
