//! Detection of routing rules that select our outer packets by more than a route lookup asks for.
//!
//! The programs send outer packets past the host's own output path, by a route that was looked up
//! once per peer: destination, source, UDP, destination port. That is only right while no rule
//! looks at anything else of them. Known of these packets: made on this host, user id 0. Not known:
//! the source port (per flow), and the mark and TOS they carry after netfilter's output chains,
//! which look up again when they change one.

use std::fmt;

use netlink_packet_route::IpProtocol;

use super::{Rule, RuleAction};

/// The user id of the kernel's own sockets, the vxlan device's among them.
const KERNEL_UID: u32 = 0;

/// A rule, and what it looks at beyond a route lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependence {
    /// Priority of the rule.
    pub priority: u32,
    /// The selector.
    pub on: RuleSelector,
}

/// The property of a packet that a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RuleSelector {
    FwMark,
    Uid,
    SourcePort,
    Tos,
    OutputInterface,
    Vrf,
    TunnelId,
    Inverted,
    /// An attribute of a newer kernel.
    Unknown,
}

impl fmt::Display for RuleSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FwMark => "the firewall mark",
            Self::Uid => "the user id",
            Self::SourcePort => "the source port",
            Self::Tos => "the TOS",
            Self::OutputInterface => "the output interface",
            Self::Vrf => "the VRF",
            Self::TunnelId => "the tunnel id",
            Self::Inverted => "what does not match it (inverted)",
            Self::Unknown => "something this version does not know",
        })
    }
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "routing rule {} looks at {}", self.priority, self.on)
    }
}

/// The first rule that could route our outer packets by more than destination, source, UDP and
/// destination port; `None` when a route lookup speaks for all of them. Pure.
pub fn tunnel_depends_on(rules: &[Rule]) -> Option<Dependence> {
    rules.iter().find_map(|rule| {
        depends(rule).map(|on| Dependence {
            priority: rule.priority,
            on,
        })
    })
}

fn depends(rule: &Rule) -> Option<RuleSelector> {
    if rule.action == RuleAction::Nop {
        return None;
    }
    // An inverted rule that "cannot match" always matches, and inverted rules are too rare for a
    // separate case.
    if rule.invert {
        return Some(RuleSelector::Inverted);
    }
    if cannot_match(rule) {
        return None;
    }
    beyond_a_lookup(rule)
}

/// One selector that excludes our packets is enough to make the rule irrelevant.
fn cannot_match(rule: &Rule) -> bool {
    let forwarded_only = rule.iif.as_deref().is_some_and(|name| name != "lo");
    let other_protocol = rule
        .ip_proto
        .is_some_and(|proto| proto != 0 && proto != u8::from(IpProtocol::Udp));
    let other_user = rule
        .uid_range
        .as_ref()
        .is_some_and(|range| !range.contains(&KERNEL_UID));
    forwarded_only || other_protocol || other_user
}

fn beyond_a_lookup(rule: &Rule) -> Option<RuleSelector> {
    let looks_at = [
        (rule.unknown, RuleSelector::Unknown),
        (
            rule.fwmark.is_some_and(|(_, mask)| mask != 0),
            RuleSelector::FwMark,
        ),
        (rule.uid_range.is_some(), RuleSelector::Uid),
        (rule.sport.is_some(), RuleSelector::SourcePort),
        (rule.tos != 0, RuleSelector::Tos),
        (rule.oif.is_some(), RuleSelector::OutputInterface),
        (rule.l3mdev, RuleSelector::Vrf),
        (
            rule.tunnel_id.is_some_and(|id| id != 0),
            RuleSelector::TunnelId,
        ),
    ];
    looks_at
        .into_iter()
        .find_map(|(looks, selector)| looks.then_some(selector))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: u8 = 17;

    fn rule() -> Rule {
        Rule::to_table(100, 42)
    }

    fn defaults() -> Vec<Rule> {
        vec![
            Rule::to_table(0, 255),
            Rule::to_table(32766, 254),
            Rule::to_table(32767, 253),
        ]
    }

    #[test]
    fn the_kernel_s_own_rules_are_plain() {
        assert_eq!(tunnel_depends_on(&defaults()), None);
        assert_eq!(tunnel_depends_on(&[]), None);
    }

    #[test]
    fn what_a_lookup_asks_for_is_plain() {
        let net = "10.9.0.0/24".parse().ok();
        for (name, plain) in [
            (
                "from",
                Rule {
                    from: net,
                    ..rule()
                },
            ),
            ("to", Rule { to: net, ..rule() }),
            (
                "ipproto udp dport",
                Rule {
                    ip_proto: Some(UDP),
                    dport: Some(8472..=8472),
                    ..rule()
                },
            ),
            (
                "iif lo",
                Rule {
                    iif: Some("lo".into()),
                    ..rule()
                },
            ),
            (
                "unreachable",
                Rule {
                    action: RuleAction::Unreachable,
                    from: net,
                    ..rule()
                },
            ),
            (
                "mask 0 selects nothing",
                Rule {
                    fwmark: Some((0, 0)),
                    ..rule()
                },
            ),
        ] {
            assert_eq!(tunnel_depends_on(&[plain]), None, "{name}");
        }
    }

    #[test]
    fn rules_that_cannot_match_our_packets_are_plain() {
        let marked = || Rule {
            fwmark: Some((1, 1)),
            ..rule()
        };
        for (name, plain) in [
            (
                "iif eth1",
                Rule {
                    iif: Some("eth1".into()),
                    ..marked()
                },
            ),
            (
                "ipproto tcp",
                Rule {
                    ip_proto: Some(6),
                    sport: Some(80..=80),
                    ..rule()
                },
            ),
            (
                "uidrange 1000-2000",
                Rule {
                    uid_range: Some(1000..=2000),
                    ..marked()
                },
            ),
            (
                "nop",
                Rule {
                    action: RuleAction::Nop,
                    ..marked()
                },
            ),
        ] {
            assert_eq!(tunnel_depends_on(&[plain]), None, "{name}");
        }
    }

    #[test]
    fn anything_else_is_named() {
        type Change = fn(&mut Rule);
        let cases: [(Change, RuleSelector); 12] = [
            (
                |rule| rule.fwmark = Some((0x4000, 0x4000)),
                RuleSelector::FwMark,
            ),
            (|rule| rule.fwmark = Some((0, 1)), RuleSelector::FwMark),
            (|rule| rule.uid_range = Some(0..=0), RuleSelector::Uid),
            (|rule| rule.sport = Some(1..=1023), RuleSelector::SourcePort),
            (
                |rule| (rule.ip_proto, rule.sport) = (Some(UDP), Some(1..=1023)),
                RuleSelector::SourcePort,
            ),
            (|rule| rule.tos = 0x10, RuleSelector::Tos),
            (
                |rule| rule.oif = Some("eth1".into()),
                RuleSelector::OutputInterface,
            ),
            (|rule| rule.l3mdev = true, RuleSelector::Vrf),
            (|rule| rule.tunnel_id = Some(7), RuleSelector::TunnelId),
            (|rule| rule.invert = true, RuleSelector::Inverted),
            (
                |rule| (rule.invert, rule.iif) = (true, Some("eth1".into())),
                RuleSelector::Inverted,
            ),
            (|rule| rule.unknown = true, RuleSelector::Unknown),
        ];
        for (change, on) in cases {
            let mut found = rule();
            change(&mut found);
            let mut rules = defaults();
            rules.insert(1, found);
            assert_eq!(
                tunnel_depends_on(&rules),
                Some(Dependence { priority: 100, on })
            );
        }
    }

    #[test]
    fn the_reason_names_the_rule() {
        let rules = [Rule {
            fwmark: Some((1, 1)),
            ..rule()
        }];
        let reason = tunnel_depends_on(&rules).expect("a dependence");
        assert_eq!(
            reason.to_string(),
            "routing rule 100 looks at the firewall mark"
        );
    }
}
