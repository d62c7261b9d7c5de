//! The engine of this node. Pure.
//!
//! `EnableNFTables` is one setting for all nodes, and nodes differ: where the tool of the engine
//! that is asked for is missing or does not work, the other one serves. Without rules the node
//! would be of no use.

use std::collections::BTreeSet;

use flannel_netfilter::is_trace_table;

use super::wanted::Engine;

/// Tables of iptables in nf_tables.
const OF_IPTABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// The engine in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EngineChoice {
    pub(super) engine: Engine,
    /// The reason for it, where another one is asked for or none.
    pub(super) reason: Option<String>,
}

/// The tools and rules of this host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// `iptables`, and `ip6tables` if that family is enabled.
    pub(super) iptables: bool,
    /// `nft`.
    pub(super) nft: bool,
    /// Other programs have rules, and all of them are in tables of nftables.
    pub(super) only_nftables: bool,
}

impl EngineChoice {
    /// Chooses by `EnableNFTables`, if that is set, and by what there is.
    pub(super) fn new(asked: Option<Engine>, found: Found) -> Self {
        let with = |engine, reason: &str| Self {
            engine,
            reason: Some(reason.to_owned()),
        };
        match asked {
            Some(Engine::Nftables) if !found.nft && found.iptables => {
                with(Engine::Iptables, "nft is not installed")
            }
            Some(Engine::Iptables) | None if !found.iptables && found.nft => {
                with(Engine::Nftables, "iptables is not installed")
            }
            None if found.only_nftables && found.nft => with(
                Engine::Nftables,
                "other programs of this host use only nftables",
            ),
            asked => Self {
                engine: asked.unwrap_or(Engine::Iptables),
                reason: None,
            },
        }
    }
}

impl Engine {
    /// Its tool.
    pub(super) const fn tool(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nft",
        }
    }

    /// The other one.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Iptables => Self::Nftables,
            Self::Nftables => Self::Iptables,
        }
    }
}

/// Returns true if there are rules of other programs, all in tables of nftables. `tables` are those
/// of nf_tables with a base chain; `has_legacy` is true if the legacy variant has tables.
pub(super) fn is_only_nftables<'a>(
    tables: impl Iterator<Item = &'a str>,
    has_legacy: bool,
) -> bool {
    let of_others: BTreeSet<&str> = tables
        .filter(|name| !name.starts_with("flannel-ipv") && !is_trace_table(name))
        .collect();
    !has_legacy && !of_others.is_empty() && !of_others.iter().any(|name| OF_IPTABLES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        asked: Option<Engine>,
        iptables: bool,
        nft: bool,
        only_nftables: bool,
    ) -> (Engine, bool) {
        let choice = EngineChoice::new(
            asked,
            Found {
                iptables,
                nft,
                only_nftables,
            },
        );
        (choice.engine, choice.reason.is_some())
    }

    #[test]
    fn the_engine_that_is_asked_for_gives_way_where_it_is_missing() {
        use Engine::{Iptables, Nftables};
        for asked in [None, Some(Iptables)] {
            assert_eq!(chosen(asked, true, true, false), (Iptables, false));
            assert_eq!(chosen(asked, false, true, false), (Nftables, true));
            assert_eq!(chosen(asked, true, false, false), (Iptables, false));
            assert_eq!(
                chosen(asked, false, false, false),
                (Iptables, false),
                "waited for"
            );
        }
        assert_eq!(chosen(Some(Nftables), true, true, false), (Nftables, false));
        assert_eq!(chosen(Some(Nftables), true, false, false), (Iptables, true));
        assert_eq!(
            chosen(Some(Nftables), false, false, false),
            (Nftables, false),
            "waited for"
        );
    }

    #[test]
    fn without_a_setting_a_host_with_only_nftables_keeps_to_it() {
        assert_eq!(chosen(None, true, true, true), (Engine::Nftables, true));
        assert_eq!(chosen(None, true, false, true), (Engine::Iptables, false));
        assert_eq!(
            chosen(Some(Engine::Iptables), true, true, true),
            (Engine::Iptables, false)
        );
    }

    #[test]
    fn tables_of_iptables_show_that_it_is_in_use() {
        let only = |tables: &[&str], legacy| is_only_nftables(tables.iter().copied(), legacy);
        assert!(!only(&[], false), "a bare host");
        assert!(only(&["kube-proxy", "firewalld"], false));
        assert!(!only(&["kube-proxy", "nat"], false));
        assert!(!only(&["kube-proxy"], true));
        assert!(
            !only(&["flannel-ipv4", "flannel-ipv6", "flannel-trace-7"], false),
            "ours say nothing"
        );
    }
}
