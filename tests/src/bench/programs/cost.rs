//! The time that programs took per packet, and the packets by reason: the lines of the table and of
//! the JSON file.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use crate::bench::plan::Mode;

/// Reasons below this share of a program's packets are not shown.
const SHOWN: f64 = 0.005;

/// The cost of one program under one load on one node.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub(super) mode: Mode,
    pub(super) load: &'static str,
    /// Whose node: the client's or the server's.
    pub(super) node: &'static str,
    pub(super) program: &'static str,
    pub(super) packets: u64,
    /// Of one run, on average.
    pub(super) nanoseconds: f64,
    /// Packets by reason.
    pub(super) reasons: BTreeMap<String, u64>,
}

/// For the terminal.
pub(super) fn table(costs: &[Cost]) -> String {
    let mut text = format!(
        "{:<7} {:<24} {:<7} {:<14} {:>6} {:>10}  {}\n",
        "mode", "load", "node", "program", "ns", "packets", "what became of them"
    );
    for cost in costs {
        writeln!(
            text,
            "{:<7} {:<24} {:<7} {:<14} {:>6.0} {:>10}  {}",
            cost.mode.to_string(),
            cost.load,
            cost.node,
            cost.program,
            cost.nanoseconds,
            cost.packets,
            shares(cost)
        )
        .expect("text grows");
    }
    text
}

/// The reasons, the most frequent first.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn shares(cost: &Cost) -> String {
    let mut shares: Vec<(&str, f64)> = cost
        .reasons
        .iter()
        .map(|(reason, packets)| (reason.as_str(), *packets as f64 / cost.packets as f64))
        .collect();
    shares.retain(|(_, share)| *share >= SHOWN);
    shares.sort_unstable_by(|one, other| other.1.total_cmp(&one.1));
    let texts: Vec<String> = shares
        .iter()
        .map(|(reason, share)| format!("{reason} {:.0}%", share * 100.0))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_reason_stands_first() {
        let reasons = [("not_learned", 120), ("flow_unknown", 879), ("sampled", 1)];
        let cost = Cost {
            mode: Mode::Fast,
            load: "never learned",
            node: "client",
            program: "from_pod",
            packets: 1000,
            nanoseconds: 88.4,
            reasons: reasons
                .map(|(reason, packets)| (reason.to_owned(), packets))
                .into(),
        };
        assert!(table(&[cost]).ends_with("    88       1000  flow_unknown 88%, not_learned 12%\n"));
    }
}
