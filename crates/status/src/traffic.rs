//! The state of the traffic rules, as `status` shows it.

use flannel_host::duration;
use serde::{Deserialize, Serialize};

/// The traffic rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrafficStatus {
    /// The tool that keeps the rules: `iptables 1.8.9 (nf_tables)`, `nftables`; absent when no rule
    /// is asked for, or no tool is found.
    pub engine: Option<String>,
    /// The reason for it, where it is not the one that `EnableNFTables` asks for, or iptables
    /// without that key; absent otherwise.
    #[serde(default)]
    pub engine_reason: Option<String>,
    /// The families with rules: `IPv4`, `IPv6`.
    pub families: Vec<String>,
    /// True if masquerade is asked for, for one family at least.
    pub masquerade: bool,
    /// The families with masquerade, if it is asked for.
    #[serde(default)]
    pub masquerade_families: Vec<String>,
    /// Destinations to which pods keep their address.
    #[serde(default)]
    pub masquerade_exempt: Vec<String>,
    /// True if forward rules are asked for.
    pub forward: bool,
    /// True if a blackhole route is asked for.
    pub blackhole: bool,
    /// The number of repairs: a rule or route that had been in place was found missing or changed,
    /// and was restored.
    pub repairs: u64,
    /// The time of the last repair, in seconds since 1970 UTC.
    pub repaired_at: Option<u64>,
    /// The reason why the rules are not as they were asked for; absent if they are.
    pub error: Option<String>,
}

impl TrafficStatus {
    /// Returns true if any rule or route is asked for.
    pub const fn is_any_asked_for(&self) -> bool {
        self.masquerade || self.forward || self.blackhole
    }

    /// One line for people; `now` in seconds since 1970 UTC.
    pub fn summary(&self, now: u64) -> String {
        let masquerade = self.masquerade_summary();
        let asked = [
            (&*masquerade, self.masquerade),
            ("forward", self.forward),
            ("blackhole", self.blackhole),
        ];
        let asked: Vec<_> = asked
            .into_iter()
            .filter_map(|(name, asked)| asked.then_some(name))
            .collect();
        if asked.is_empty() {
            return "no rules asked for".to_owned();
        }
        let reason = self
            .engine_reason
            .as_ref()
            .map(|reason| format!(" ({reason})"))
            .unwrap_or_default();
        let engine = self
            .engine
            .as_ref()
            .map(|engine| format!(" by {engine}{reason}"))
            .unwrap_or_default();
        let repairs = match (self.repairs, self.repaired_at) {
            (1.., Some(at)) => {
                let times = if self.repairs == 1 {
                    "once"
                } else {
                    &format!("{} times", self.repairs)
                };
                format!(
                    "; repaired {times}, last {} ago",
                    duration::format(now.saturating_sub(at))
                )
            }
            _ => String::new(),
        };
        format!(
            "{} for {}{engine}{repairs}",
            asked.join(", "),
            self.families.join(" and ")
        )
    }
}

impl TrafficStatus {
    /// Masquerade, with its limits.
    fn masquerade_summary(&self) -> String {
        let mut limits = Vec::new();
        let is_left_out = |family: &String| !self.masquerade_families.contains(family);
        // An agent of an earlier version does not name the families.
        if !self.masquerade_families.is_empty() && self.families.iter().any(is_left_out) {
            limits.push(format!("{} only", self.masquerade_families.join(" and ")));
        }
        if !self.masquerade_exempt.is_empty() {
            limits.push(format!("not to {}", self.masquerade_exempt.join(" ")));
        }
        if limits.is_empty() {
            "masquerade".to_owned()
        } else {
            format!("masquerade ({})", limits.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_is_asked_for_who_keeps_it_and_who_does_not() {
        assert_eq!(TrafficStatus::default().summary(9), "no rules asked for");
        let families = vec!["IPv4".to_owned(), "IPv6".to_owned()];
        let masquerade_families = families.clone();
        let both = TrafficStatus {
            masquerade: true,
            masquerade_families,
            forward: true,
            families,
            ..TrafficStatus::default()
        };
        assert_eq!(both.summary(9), "masquerade, forward for IPv4 and IPv6");
        let exempt = vec!["10.0.0.0/8".to_owned(), "192.0.2.1/32".to_owned()];
        let limited = TrafficStatus {
            masquerade_families: vec!["IPv4".to_owned()],
            masquerade_exempt: exempt,
            ..both.clone()
        };
        assert_eq!(
            limited.summary(9),
            "masquerade (IPv4 only; not to 10.0.0.0/8 192.0.2.1/32), forward for IPv4 and IPv6"
        );
        let engine = Some("nftables".to_owned());
        let repaired = TrafficStatus {
            engine,
            repairs: 2,
            repaired_at: Some(5),
            ..both
        };
        assert_eq!(
            repaired.summary(9),
            "masquerade, forward for IPv4 and IPv6 by nftables; repaired 2 times, last 4s ago"
        );
    }
}
