//! The reader of nf_tables, by netlink.
//!
//! It starts at the chains that hooks call and follows jumps, so it reads only rules that packets
//! of these hooks can get to. A host has tens of thousands of chains of kube-proxy, which only
//! hooks of NAT call.

mod condition;
mod fields;
#[cfg(test)]
pub(super) mod fuzz;
mod keys;
mod load;
pub(super) mod rule;
mod set_facts;
mod sets;

use std::collections::{BTreeSet, HashMap};

use flannel_netfilter::{NftablesReader, NftablesTable, is_trace_table};
use flannel_netlink::NetlinkError;

pub use self::keys::family as nft_family;
use self::{rule::RuleReader, set_facts::SetFacts, sets::KernelSets};
use crate::{
    hooks::Hooks,
    model::{ChainHook, HostRule, Ruleset},
};

/// The sockets of a read: sets are read while the rules of a chain arrive.
#[derive(Debug)]
pub(super) struct NftSockets {
    rules: NftablesReader,
    sets: NftablesReader,
}

/// A chain whose rules wait to be read.
type Waiting = (NftablesTable, String);

impl NftSockets {
    /// Opens sockets in the network namespace of the calling thread; `None` if the kernel has no
    /// nf_tables.
    pub(super) fn open() -> Result<Option<Self>, NetlinkError> {
        let (rules, sets) = (NftablesReader::open()?, NftablesReader::open()?);
        Ok(rules.zip(sets).map(|(rules, sets)| Self { rules, sets }))
    }

    /// Returns the number of the present generation of rules.
    pub(super) fn generation(&mut self) -> Result<u32, NetlinkError> {
        self.rules.generation()
    }

    /// Adds the rules that packets of these hooks get to, and all hooks. Blocks.
    pub(super) fn read(&mut self, found: &mut Ruleset, hooks: Hooks) -> Result<(), NetlinkError> {
        let mut waiting: Vec<Waiting> = Vec::new();
        self.rules.base_chains(|chain| {
            let Some(family) = keys::family(chain.table.family) else {
                return;
            };
            if is_trace_table(&chain.table.name) {
                return;
            }
            let hook = ChainHook {
                at: keys::hook(chain.table.family, chain.hook).to_owned(),
                nat: chain.kind == "nat",
                drops: chain.drops,
                devices: chain.devices,
            };
            if hooks.have(&hook) {
                waiting.push((chain.table.clone(), chain.name.clone()));
            }
            found.add_chain(
                &format!("{family} {}", chain.table.name),
                &chain.name,
                Some(hook),
            );
        })?;
        let mut reached: BTreeSet<Waiting> = waiting.iter().cloned().collect();
        let mut known = HashMap::new();
        while let Some((table, chain)) = waiting.pop() {
            let targets = self.read_chain(&table, &chain, found, hooks, &mut known)?;
            let targets = targets.into_iter().map(|target| (table.clone(), target));
            waiting.extend(targets.filter(|target| reached.insert(target.clone())));
        }
        Ok(())
    }

    /// Reads the rules of a chain, and returns the chains they lead to.
    fn read_chain(
        &mut self,
        table: &NftablesTable,
        chain: &str,
        found: &mut Ruleset,
        hooks: Hooks,
        known: &mut HashMap<(NftablesTable, String), SetFacts>,
    ) -> Result<BTreeSet<String>, NetlinkError> {
        let name = format!(
            "{} {}",
            keys::family(table.family).unwrap_or("?"),
            table.name
        );
        let mut sets = KernelSets::new(&mut self.sets, table.clone(), known);
        let mut targets = BTreeSet::new();
        found.add_chain(&name, chain, None);
        self.rules.rules(table, chain, |_, expressions| {
            let rule = RuleReader::new(&mut sets, table.family, HostRule::new(&name, chain))
                .read(expressions);
            targets.extend(hooks.follow(&rule).cloned());
            found.add(rule);
        })?;
        sets.finish()?;
        Ok(targets)
    }
}
