//! The tools of this host: the engine that keeps our rules, and the engines that must not have our
//! rules.

use std::{collections::BTreeMap, fmt};

use flannel_firewall_tools::legacy;
use flannel_host::family::Family;
use flannel_netfilter::{NftablesReader, NftablesTable};
use ipnet::IpNet;
use tokio::task::spawn_blocking;

use super::{
    TrafficError,
    choice::{EngineChoice, Found, is_only_nftables},
    iptables::{self, Tool, Tools},
    nftables::{self, Nft},
    rule::{self, Chains},
    wanted::Engine,
};

/// The remedy for a missing iptables: either engine does.
const OR_NFTABLES: &str = "nftables";
/// The remedy for a missing nft.
const OR_IPTABLES: &str = "iptables";

/// The tools of this host that can keep IPv4 rules.
#[derive(Clone, Debug)]
pub struct InstalledTools {
    /// The iptables in use, in words; `None` if none is installed.
    pub iptables: Option<String>,
    /// True if nft is installed.
    pub nft: bool,
}

/// Looks for the tools.
pub async fn installed_tools() -> InstalledTools {
    let found = Engines::find(None, &[Family::V4]).await;
    InstalledTools {
        iptables: found.v4.chosen.as_ref().map(Tool::to_string),
        nft: found.nft.is_some(),
    }
}

/// The tools found on this host.
#[derive(Debug)]
pub(super) struct Engines {
    /// The engine that is asked for, if any is.
    asked: Option<Engine>,
    choice: EngineChoice,
    /// The families whose rules are kept.
    families: Vec<Family>,
    v4: Tools,
    v6: Tools,
    nft: Option<Nft>,
    /// The chains of iptables as they were wanted and found, with the handles of their rules.
    kept: BTreeMap<Family, (Chains, Handles)>,
}

/// The handles of the rules in our chains and in those that lead to them.
type Handles = Vec<(&'static str, u64)>;

impl Engines {
    /// Looks for all of them, and chooses the one to use for rules of these families.
    pub(super) async fn find(asked: Option<Engine>, families: &[Family]) -> Self {
        let (v4, v6) = tokio::join!(Tools::find(Family::V4), Tools::find(Family::V6));
        let choice = EngineChoice::new(asked, Found::default());
        let nft = Nft::find();
        let mut found = Self {
            asked,
            choice,
            families: families.to_vec(),
            v4,
            v6,
            nft,
            kept: BTreeMap::new(),
        };
        found.choose().await;
        found
    }

    async fn choose(&mut self) {
        let found = Found {
            iptables: self.has(Engine::Iptables),
            nft: self.has(Engine::Nftables),
            only_nftables: self.asked.is_none() && only_nftables().await,
        };
        self.use_engine(EngineChoice::new(self.asked, found)).await;
    }

    /// Returns true if the tools of this engine are installed, for all families with rules.
    fn has(&self, engine: Engine) -> bool {
        match engine {
            Engine::Iptables => self
                .families
                .iter()
                .all(|family| self.tools(*family).chosen.is_some()),
            Engine::Nftables => self.nft.is_some(),
        }
    }

    async fn use_engine(&mut self, choice: EngineChoice) {
        self.choice = choice;
        if let (Engine::Nftables, Some(nft)) = (self.choice.engine, &mut self.nft) {
            nft.probe().await;
        }
    }

    /// Goes over to the other engine, if it is installed, because the tool of this one does not
    /// work here. Returns true if it did.
    pub(super) async fn give_way(&mut self, error: &TrafficError) -> bool {
        let other = self.choice.engine.other();
        if !self.has(other) {
            return false;
        }
        let reason = format!("{} does not work here: {error}", self.choice.engine.tool());
        tracing::warn!(reason, "traffic rules are kept by {}", other.tool());
        self.use_engine(EngineChoice {
            engine: other,
            reason: Some(reason),
        })
        .await;
        true
    }

    /// The engine in use, and the reason why it is another one than the one that is asked for.
    pub(super) const fn choice(&self) -> &EngineChoice {
        &self.choice
    }

    /// Checks that this family can have rules. Searches again for missing tools, which may have
    /// been installed since.
    pub(super) async fn demand(&mut self, family: Family) -> Result<(), TrafficError> {
        if self.missing(family).is_some() {
            (self.v4, self.v6) = tokio::join!(Tools::find(Family::V4), Tools::find(Family::V6));
            self.nft = Nft::find();
            self.choose().await;
        }
        self.missing(family).map_or(Ok(()), Err)
    }

    /// Returns the error that keeps this family from having rules, if any.
    pub(super) fn missing(&self, family: Family) -> Option<TrafficError> {
        let (tool, package, instead, there) = match (self.choice.engine, family) {
            (Engine::Nftables, _) => ("nft", "nftables", OR_IPTABLES, self.nft.is_some()),
            (Engine::Iptables, Family::V4) => (
                "iptables",
                "iptables",
                OR_NFTABLES,
                self.v4.chosen.is_some(),
            ),
            (Engine::Iptables, Family::V6) => (
                "ip6tables",
                "iptables",
                OR_NFTABLES,
                self.v6.chosen.is_some(),
            ),
        };
        (!there).then_some(TrafficError::Missing {
            tool,
            package,
            instead,
        })
    }

    const fn tools(&self, family: Family) -> &Tools {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Returns true if masquerade can choose ports at random.
    pub(super) fn knows_random_fully(&self, family: Family) -> bool {
        match self.choice.engine {
            Engine::Iptables => self
                .tools(family)
                .chosen
                .as_ref()
                .is_some_and(Tool::knows_random_fully),
            Engine::Nftables => self.nft.as_ref().is_some_and(Nft::knows_random_fully),
        }
    }

    /// Brings the chains of a family into the wanted state; does nothing if the tool is missing.
    /// Returns true if they had to be changed.
    pub(super) async fn keep(
        &mut self,
        family: Family,
        chains: &Chains,
        networks: &[IpNet],
    ) -> Result<bool, TrafficError> {
        match (self.choice.engine, &self.tools(family).chosen, &self.nft) {
            (Engine::Iptables, Some(tool), _) => {
                let before = if tool.is_in_nftables() {
                    handles(family, chains).await
                } else {
                    None
                };
                let is_kept = before
                    .as_ref()
                    .zip(self.kept.get(&family))
                    .is_some_and(|(before, (of, kept))| of == chains && kept == before);
                if is_kept {
                    return Ok(false);
                }
                let changed = iptables::keep(tool, chains, Some(networks)).await?;
                match before {
                    Some(before) if !changed => {
                        drop(self.kept.insert(family, (chains.clone(), before)));
                    }
                    _ => drop(self.kept.remove(&family)),
                }
                Ok(changed)
            }
            (Engine::Nftables, _, Some(nft)) => nft.keep(family, chains, Some(networks)).await,
            _ => Ok(false),
        }
    }

    /// Removes the rules that an earlier agent left in the engines that are not used. An engine
    /// that does not work is ignored.
    pub(super) async fn leave_others(&self, networks: &[IpNet]) {
        let nothing = rule::nothing();
        for family in Family::BOTH {
            let tools = self.tools(family);
            let chosen = tools
                .chosen
                .iter()
                .filter(|_| self.choice.engine != Engine::Iptables);
            for tool in tools.others.iter().chain(chosen) {
                log_removal(tool, iptables::keep(tool, &nothing, Some(networks)).await);
            }
            if let Some(nft) = self
                .nft
                .iter()
                .find(|_| self.choice.engine != Engine::Nftables)
            {
                log_removal("nftables", nft.keep(family, &nothing, Some(networks)).await);
            }
        }
    }

    /// The tables whose changes the kernel announces: ours, or those of iptables where both
    /// families use the `nf_tables` variant.
    pub(super) fn announced(&self) -> Option<[&'static str; 2]> {
        let in_nftables = |tools: &Tools| tools.chosen.as_ref().is_none_or(Tool::is_in_nftables);
        match self.choice.engine {
            Engine::Nftables => Some(Family::BOTH.map(nftables::table)),
            Engine::Iptables => {
                (in_nftables(&self.v4) && in_nftables(&self.v6)).then(iptables::tables)
            }
        }
    }

    /// The engine in use, for people; `None` when it is missing.
    pub(super) fn describe(&self) -> Option<String> {
        match self.choice.engine {
            Engine::Iptables => self
                .v4
                .chosen
                .as_ref()
                .or(self.v6.chosen.as_ref())
                .map(Tool::to_string),
            Engine::Nftables => self.nft.as_ref().map(|_| "nftables".to_owned()),
        }
    }
}

/// Returns true if other programs have rules here, and all of them in tables of nftables.
async fn only_nftables() -> bool {
    let has_legacy = Family::BOTH
        .into_iter()
        .any(|family| !legacy::tables(family).is_empty());
    let read = || {
        let mut tables = Vec::new();
        NftablesReader::open()
            .ok()??
            .base_chains(|chain| tables.push(chain.table.name))
            .ok()?;
        Some(tables)
    };
    let tables = spawn_blocking(read)
        .await
        .ok()
        .flatten()
        .unwrap_or_default();
    is_only_nftables(tables.iter().map(String::as_str), has_legacy)
}

/// Reads handles from the kernel, which costs nothing next to a tool. `None` if it cannot be read:
/// then the tool decides.
async fn handles(family: Family, chains: &Chains) -> Option<Handles> {
    let places: Vec<_> = chains
        .iter()
        .map(|(purpose, _)| iptables::chains_of(*purpose))
        .collect();
    let read = move || {
        let mut reader = NftablesReader::open().ok()??;
        let mut found = Handles::new();
        for (table, chains) in places {
            let table = NftablesTable::new(family, table);
            for chain in chains {
                reader
                    .rules(&table, chain, |handle, _| found.push((chain, handle)))
                    .ok()?;
            }
        }
        Some(found)
    };
    spawn_blocking(read).await.ok()?
}

fn log_removal(engine: impl fmt::Display, removed: Result<bool, TrafficError>) {
    match removed {
        Ok(true) => {
            tracing::info!(%engine, "removed rules of ours from an engine that is not used");
        }
        Ok(false) => {}
        Err(error) => {
            tracing::debug!(%engine, %error, "cannot look for rules of ours in an engine that is \
                not used");
        }
    }
}
