//! Removes all our rules from every engine of this host, regardless of the networks they name: for
//! `cleanup`.

use std::fmt;

use flannel_host::family::Family;

use super::{
    TrafficError,
    iptables::{self, Tool, Tools},
    nftables::{self, Nft},
    rule::nothing,
};

/// Our rules in one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    family: Family,
    engine: Holder,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    Iptables(Tool),
    Nftables(Nft),
}

/// Looks for our rules. An engine that cannot be read is logged and skipped, because its rules
/// could not be removed either.
pub async fn find() -> Vec<Leftover> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        let Tools { chosen, others } = Tools::find(family).await;
        let tools = chosen.into_iter().chain(others).map(Holder::Iptables);
        for engine in tools.chain(Nft::find().map(Holder::Nftables)) {
            let leftover = Leftover { family, engine };
            match leftover.difference().await {
                Ok(text) if text.is_empty() => {}
                Ok(_) => found.push(leftover),
                Err(error) => tracing::warn!(%error, "cannot look for traffic rules"),
            }
        }
    }
    found
}

impl Leftover {
    /// Removes them.
    pub async fn remove(&self) -> Result<(), TrafficError> {
        match &self.engine {
            Holder::Iptables(tool) => iptables::keep(tool, &nothing(), None).await.map(drop),
            Holder::Nftables(nft) => nft.keep(self.family, &nothing(), None).await.map(drop),
        }
    }

    async fn difference(&self) -> Result<String, TrafficError> {
        match &self.engine {
            Holder::Iptables(tool) => iptables::difference(tool, &nothing(), None).await,
            Holder::Nftables(nft) => nft.difference(self.family, &nothing(), None).await,
        }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.engine {
            Holder::Iptables(tool) => write!(f, "the {} rules in {tool}", self.family),
            Holder::Nftables(_) => write!(f, "the nftables table {}", nftables::table(self.family)),
        }
    }
}
