//! Rules by `iptables` and `ip6tables`: one flannel chain per table, with a jump to it at the end
//! of the built-in chain.
//!
//! A table may have tens of thousands of rules of others. The nf_tables variant lists two chains of
//! it (`-S`); the legacy variant reads whole tables, by `iptables-save`, which takes no lock. Rules
//! are written by one `iptables-restore --noflush`, with a transaction per table, and only where
//! something differs.

mod place;
mod save;
mod tools;
mod transaction;

use std::fmt::Write as _;

use flannel_firewall_tools::tool;
use ipnet::IpNet;

use self::place::Place;
pub(super) use self::tools::{Tool, Tools};
use super::{
    TrafficError,
    chain::Ours,
    rule::{Chains, Purpose},
};

/// The chains that are read for the rules of a purpose: table, chain that leads to ours, our chain.
pub(super) const fn chains_of(purpose: Purpose) -> (&'static str, [&'static str; 2]) {
    let place = Place::of(purpose);
    (place.table, [place.parent, place.chain])
}

/// The tables with our chains.
pub(super) fn tables() -> [&'static str; 2] {
    Purpose::ALL.map(|purpose| Place::of(purpose).table)
}

/// Brings the chains into the desired state. Returns true if they differed.
///
/// Rules that name `networks` are ours; if it is `None`, all rules in our chains are.
pub(super) async fn keep(
    tool: &Tool,
    chains: &Chains,
    networks: Option<&[IpNet]>,
) -> Result<bool, TrafficError> {
    let text = difference(tool, chains, networks).await?;
    if text.is_empty() {
        return Ok(false);
    }
    tool::run(&tool.restore, tool.restore_args(), &text).await?;
    if !difference(tool, chains, networks).await?.is_empty() {
        return Err(TrafficError::NotKept {
            what: format!("what {tool} has of our chains"),
        });
    }
    Ok(true)
}

/// The transactions that are missing, as the input of `iptables-restore`; empty when there is
/// nothing to do.
pub(super) async fn difference(
    tool: &Tool,
    chains: &Chains,
    networks: Option<&[IpNet]>,
) -> Result<String, TrafficError> {
    let mut text = String::new();
    for (purpose, rules) in chains {
        let place = Place::of(*purpose);
        let wanted = rules.as_ref().map(|rules| place.specs(rules));
        if wanted.is_none() && !tool.may_have(place.table) {
            continue;
        }
        let found = tool.read(&place).await?;
        let ours = networks.map_or(Ours::All, |networks| Ours::Naming {
            networks: networks.to_vec(),
            remark: Some(place.comment),
        });
        let lines = match wanted {
            Some(rules) => transaction::install(&place, &found, &rules, &ours),
            None => transaction::remove(&place, &found, &ours),
        };
        if !lines.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "*{}\n{}\nCOMMIT", place.table, lines.join("\n"));
        }
    }
    Ok(text)
}
