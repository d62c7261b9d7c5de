//! The chain of a purpose, and its rules as the tools write them. Pure.

use crate::rule::{AddressMatch, KUBE_PROXY_MARK, Purpose, RuleVerdict, TrafficRule};

/// The table and the chains of the rules of a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) table: &'static str,
    pub(super) chain: &'static str,
    /// The built-in chain that leads to ours.
    pub(super) parent: &'static str,
    /// The comment of each of our rules.
    pub(super) comment: &'static str,
}

impl Place {
    pub(super) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Masquerade => Self {
                table: "nat",
                chain: "FLANNEL-POSTRTG",
                parent: "POSTROUTING",
                comment: "flanneld masq",
            },
            Purpose::Forward => Self {
                table: "filter",
                chain: "FLANNEL-FWD",
                parent: "FORWARD",
                comment: "flanneld forward",
            },
        }
    }

    /// Rules as `iptables-save` prints them.
    pub(super) fn specs(&self, rules: &[TrafficRule]) -> Vec<String> {
        rules.iter().map(|rule| self.spec(rule)).collect()
    }

    fn spec(&self, rule: &TrafficRule) -> String {
        let mut words = Vec::new();
        words.extend(address("-s", rule.source));
        words.extend(address("-d", rule.destination));
        words.extend(
            rule.marked
                .then(|| format!("-m mark --mark {KUBE_PROXY_MARK:#x}/{KUBE_PROXY_MARK:#x}")),
        );
        words.push(self.remark());
        words.push(
            match rule.verdict {
                RuleVerdict::Return => "-j RETURN",
                RuleVerdict::Accept => "-j ACCEPT",
                RuleVerdict::Masquerade { random_fully: true } => "-j MASQUERADE --random-fully",
                RuleVerdict::Masquerade {
                    random_fully: false,
                } => "-j MASQUERADE",
            }
            .to_owned(),
        );
        words.join(" ")
    }

    fn remark(&self) -> String {
        format!("-m comment --comment \"{}\"", self.comment)
    }

    /// The rule of the built-in chain.
    pub(super) fn jump(&self) -> String {
        format!("{} -j {}", self.remark(), self.chain)
    }

    pub(super) fn refill(&self, rules: &[String]) -> Vec<String> {
        let declared = format!(":{} - [0:0]", self.chain);
        std::iter::once(declared)
            .chain(rules.iter().map(|rule| format!("-A {} {rule}", self.chain)))
            .collect()
    }
}

fn address(option: &str, side: AddressMatch) -> Option<String> {
    match side {
        AddressMatch::Any => None,
        AddressMatch::In(net) => Some(format!("{option} {net}")),
        AddressMatch::NotIn(net) => Some(format!("! {option} {net}")),
    }
}
