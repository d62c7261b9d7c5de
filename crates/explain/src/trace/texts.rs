//! The texts of the rules of a trace, as nft lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use flannel_firewall_tools::{rule_texts, tool};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::document::{TraceReport, TracedRule};

/// Chains that are listed.
const CHAINS: usize = 16;
/// The time limit for all of them. A ruleset may have a hundred thousand rules.
const LIMIT: Duration = Duration::from_secs(10);

/// Adds the texts of rules, those that dropped first. A rule keeps none if nft is not installed or
/// does not list its chain.
pub(super) async fn add(report: &mut TraceReport) {
    let Some(nft) = tool::find("nft") else { return };
    let mut chains: BTreeMap<[String; 3], BTreeSet<u64>> = BTreeMap::new();
    for rule in rules(report) {
        let (place, Some(handle)) = (place(rule), rule.handle) else {
            continue;
        };
        if chains.len() < CHAINS || chains.contains_key(&place) {
            chains.entry(place).or_default().insert(handle);
        }
    }
    let mut texts: BTreeMap<([String; 3], u64), String> = BTreeMap::new();
    let deadline = Instant::now() + LIMIT;
    for (place, handles) in chains {
        let listed = rule_texts::of_chain(&nft, place.each_ref().map(String::as_str), &handles);
        match timeout_at(deadline, listed).await {
            Ok(Ok(found)) => texts.extend(
                found
                    .into_iter()
                    .map(|(handle, text)| ((place.clone(), handle), text)),
            ),
            Ok(Err(error)) => debug!(%error, "nft does not list a chain"),
            Err(_elapsed) => break,
        }
    }
    for rule in rules(report) {
        rule.text = rule
            .handle
            .and_then(|handle| texts.get(&(place(rule), handle)).cloned());
    }
}

fn rules(report: &mut TraceReport) -> impl Iterator<Item = &mut TracedRule> {
    let of_drops = report.drops.iter_mut().map(|drop| &mut drop.rule);
    of_drops.chain(report.paths.iter_mut().flat_map(|path| &mut path.rules))
}

fn place(rule: &TracedRule) -> [String; 3] {
    [&rule.family, &rule.table, &rule.chain].map(Clone::clone)
}
