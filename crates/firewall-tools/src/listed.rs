//! The reader of `nft list table`. Pure.

use std::collections::BTreeMap;

/// The chains of a table, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedTable {
    /// By name.
    pub chains: BTreeMap<String, ListedChain>,
    /// True if there are objects other than chains, such as sets and maps, which are never ours.
    pub more: bool,
}

/// One chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedChain {
    /// The hook of a base chain: `type nat hook postrouting priority srcnat; policy accept;`.
    pub hook: String,
    /// Its rules, as `add rule` would take them.
    pub rules: Vec<String>,
}

impl ListedTable {
    /// Reads a listing without counters (`-s`).
    pub fn parse(listing: &str) -> Self {
        let mut found = Self::default();
        let mut chain: Option<(String, ListedChain)> = None;
        for line in listing.lines().skip(1).map(str::trim) {
            match &mut chain {
                Some(_) if line == "}" => found.chains.extend(chain.take()),
                Some((_, chain)) if line.starts_with("type ") => line.clone_into(&mut chain.hook),
                Some(_) if line.is_empty() || line.starts_with("comment ") => {}
                Some((_, chain)) => chain.rules.push(line.to_owned()),
                None => match line
                    .strip_prefix("chain ")
                    .and_then(|rest| rest.strip_suffix(" {"))
                {
                    Some(name) => chain = Some((name.to_owned(), ListedChain::default())),
                    None => found.more |= line.ends_with('{'),
                },
            }
        }
        found
    }
}
