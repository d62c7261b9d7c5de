//! The chains of table `nat` of iptables that a question needs, read when they are needed.
//!
//! The table has tens of thousands of chains of kube-proxy. The nf_tables variant lists one chain
//! (`-S`). The legacy variant lists only whole tables: its lines are dropped as they arrive.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use flannel_firewall_tools::{
    ToolError, legacy,
    saved::{self, SavedLine},
    tool, words,
};
use flannel_host::family::Family;
use flannel_netfilter::{NftablesReader, NftablesTable};
use flannel_netlink::NetlinkError;
use tokio::task::spawn_blocking;

/// The table.
const NAT: &str = "nat";
/// The most rules that an answer may need.
const RULES_MAX: usize = 1 << 16;

/// A rule as its words.
pub(super) type Words = Vec<String>;

/// The rules of chains that were read, by chain. A name that is not a chain has no rules.
#[derive(Clone, Debug, Default)]
pub(super) struct NatChains {
    known: BTreeMap<String, Vec<Words>>,
    missing: BTreeSet<String>,
}

/// A tool that lists chains.
#[derive(Clone, Debug)]
pub(super) struct Lister {
    /// The tool that lists all chains, for reports.
    pub(super) name: String,
    path: PathBuf,
    family: Family,
    is_legacy: bool,
}

impl NatChains {
    /// Returns the rules of a chain. A chain that was not read has none, and is read by
    /// [`Lister::answer`].
    pub(super) fn rules(&mut self, chain: &str) -> Vec<Words> {
        let known = self.known.get(chain);
        if known.is_none() {
            self.missing.insert(chain.to_owned());
        }
        known.cloned().unwrap_or_default()
    }

    /// Adds a line of a listing, if it is a rule of these chains.
    fn add(&mut self, line: &str, wanted: &BTreeSet<String>) {
        if let Some(SavedLine::Rule { chain, options }) = saved::line(line)
            && wanted.contains(chain)
        {
            let rule = words::split(options)
                .into_iter()
                .map(std::borrow::Cow::into_owned)
                .collect();
            self.known.entry(chain.to_owned()).or_default().push(rule);
        }
    }

    /// Reads a whole dump.
    #[cfg(test)]
    pub(super) fn parse(dump: &str) -> Self {
        let mut chains = Self::default();
        for line in dump.lines() {
            match saved::line(line) {
                Some(SavedLine::Chain { name, .. }) => {
                    chains.known.entry(name.to_owned()).or_default();
                }
                Some(SavedLine::Rule { chain, .. }) => {
                    chains.add(line, &BTreeSet::from([chain.to_owned()]));
                }
                _ => {}
            }
        }
        chains
    }
}

impl Lister {
    /// The listers of the variants that are installed.
    pub(super) fn find(family: Family) -> Vec<Self> {
        let base = legacy::base(family);
        let nft = tool::find(&format!("{base}-nft"))
            .or_else(|| tool::find(base).filter(|path| tool::is_of_nftables(path)))
            .map(|path| Self {
                name: format!("{base}-nft-save"),
                path,
                family,
                is_legacy: false,
            });
        let exists = legacy::tables(family).iter().any(|table| table == NAT);
        let saver = if exists { legacy::saver(base) } else { None };
        let legacy = saver.map(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            Self {
                name,
                path,
                family,
                is_legacy: true,
            }
        });
        nft.into_iter().chain(legacy).collect()
    }

    /// Asks `ask` again until it has all chains that its answer needs.
    pub(super) async fn answer<T>(&self, ask: impl Fn(&mut NatChains) -> T) -> Result<T, String> {
        let mut chains = NatChains::default();
        loop {
            let answer = ask(&mut chains);
            let missing = std::mem::take(&mut chains.missing);
            if missing.is_empty() {
                return Ok(answer);
            }
            self.read(&missing, &mut chains).await?;
            for chain in missing {
                chains.known.entry(chain).or_default();
            }
            if chains.known.values().map(Vec::len).sum::<usize>() > RULES_MAX {
                return Err(format!(
                    "{}: more than {RULES_MAX} rules have to do with the packet",
                    self.name
                ));
            }
        }
    }

    async fn read(&self, wanted: &BTreeSet<String>, chains: &mut NatChains) -> Result<(), String> {
        let read = if self.is_legacy {
            tool::each_line(&self.path, &["-t", NAT], |line| chains.add(line, wanted)).await
        } else {
            let existing = existing(self.family, wanted.clone()).await?;
            self.list(&existing, wanted, chains).await
        };
        read.map_err(|error| error.to_string())
    }

    async fn list(
        &self,
        existing: &[String],
        wanted: &BTreeSet<String>,
        chains: &mut NatChains,
    ) -> Result<(), ToolError> {
        for chain in existing {
            tool::each_line(&self.path, &["-t", NAT, "-S", chain], |line| {
                chains.add(line, wanted);
            })
            .await?;
        }
        Ok(())
    }
}

/// The chains among these names. To the tool any other name is an error.
async fn existing(family: Family, names: BTreeSet<String>) -> Result<Vec<String>, String> {
    let look = move || {
        let Some(mut reader) = NftablesReader::open()? else {
            return Ok(Vec::new());
        };
        let (table, mut found) = (NftablesTable::new(family, NAT), Vec::new());
        for name in names {
            if reader.has_chain(&table, &name)? {
                found.push(name);
            }
        }
        Ok(found)
    };
    let found = spawn_blocking(look)
        .await
        .map_err(|_panic| "the reader of nf_tables panicked".to_owned())?;
    found.map_err(|error: NetlinkError| error.to_string())
}
