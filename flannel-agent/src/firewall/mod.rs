//! The firewall rules of this host, as far as they bear on pods' packets: read, never written.
//!
//! Two questions: which rules judge single packets, of which mode `fast` shows them one in two seconds ([`Ruleset::per_packet`]),
//! and which name the tunnel's port or drop by default ([`Ruleset::at_port`], [`Ruleset::dropping_policies`]). Rules of NAT chains
//! are left out of the first: conntrack asks them once for each connection anyway. Rules are not evaluated.

mod judge;
mod nft;
mod save;
mod watch;

use std::collections::BTreeSet;

use crate::traffic::tool;

pub use self::{judge::PerPacket, watch::Watch};

/// Chains and rules of every table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    chains: Vec<Chain>,
    rules: Vec<Rule>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    /// Family and table, such as `ip filter`.
    table: String,
    name: String,
    /// Where the kernel calls it; none for one that other chains call.
    hook: Option<Hook>,
}

/// How the kernel calls a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hook {
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`.
    at: String,
    nat: bool,
    drops: bool,
}

/// A rule, by what is asked about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    table: String,
    chain: String,
    /// What of it looks at single packets.
    per_packet: BTreeSet<&'static str>,
    /// Chains it leads to.
    targets: BTreeSet<String>,
    /// Destination ports it names.
    ports: BTreeSet<u16>,
    /// It drops or rejects.
    drops: bool,
}

impl Ruleset {
    /// The rules of this network namespace, by whatever tool is there; none where no tool is. What a tool refuses comes with it.
    pub async fn read() -> (Option<Self>, Vec<String>) {
        let (mut rules, mut errors) = (None, Vec::new());
        let nft = tool::find("nft");
        if let Some(nft) = &nft {
            match tool::run(nft, &["-j", "list", "ruleset"], "").await {
                Ok(text) => match nft::parse(&text) {
                    Some(found) => rules.get_or_insert_with(Self::default).extend(found),
                    None => errors.push("nft -j printed what is not understood here".to_owned()),
                },
                Err(error) => errors.push(error.to_string()),
            }
        }
        // nft shows what the other variant of iptables keeps.
        let variant = if nft.is_some() && errors.is_empty() { "-legacy" } else { "" };
        for (family, base) in [("ip", "iptables"), ("ip6", "ip6tables")] {
            let Some(path) = tool::find(&format!("{base}{variant}-save")) else { continue };
            match tool::run(&path, &[], "").await {
                Ok(text) => rules.get_or_insert_with(Self::default).extend(save::parse(family, &text)),
                Err(error) => errors.push(error.to_string()),
            }
        }
        (rules, errors)
    }

    fn extend(&mut self, other: Self) {
        self.chains.extend(other.chains);
        self.rules.extend(other.rules);
    }
}
