//! Reading the rules of kube-proxy: only the chains and maps that are asked for.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use flannel_firewall_tools::{
    saved::{self, SavedLine},
    tool,
};
use flannel_netfilter::{Attributes, NftablesReader, NftablesTable};
use flannel_netlink::NetlinkError;
use tokio::task::spawn_blocking;

use super::rule::{self, ServiceRule, Target};
use crate::nft::rule::verdict_chain;

/// The most rules that an answer may need. A Service has three for each endpoint.
const RULES_MAX: usize = 1 << 16;

/// The place of rules.
#[derive(Clone, Debug)]
pub(super) enum Chains {
    /// A table of nf_tables.
    Nft(NftablesTable),
    /// A table of the legacy variant, listed by this tool.
    Legacy(PathBuf, &'static str),
}

/// A rule, with its chain.
pub(super) type Placed = (String, ServiceRule);

/// An element of a map from Services to chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapEntry {
    pub(super) address: IpAddr,
    pub(super) protocol: u8,
    pub(super) port: u16,
    pub(super) comment: Option<String>,
    pub(super) chain: String,
}

impl Chains {
    /// Returns the rules of these chains that `is_wanted` selects, in their order; `None` if no
    /// chain exists. Targets are chains.
    pub(super) async fn rules(
        &self,
        chains: BTreeSet<String>,
        is_wanted: impl Fn(&ServiceRule) -> bool + Send + 'static,
    ) -> Result<Option<Vec<Placed>>, String> {
        match self {
            Self::Nft(table) => {
                let table = table.clone();
                blocking(move |reader| nft_rules(reader, &table, &chains, is_wanted))
                    .await
                    .map(Option::flatten)
            }
            Self::Legacy(tool, table) => {
                let (mut found, mut exists) = (Vec::new(), false);
                let args = ["-t", table];
                let read = tool::each_line(tool, &args, |line| match saved::line(line) {
                    Some(SavedLine::Chain { name, .. }) => exists |= chains.contains(name),
                    Some(SavedLine::Rule { chain, options }) if chains.contains(chain) => {
                        add(
                            &mut found,
                            chain,
                            ServiceRule::of_options(options),
                            &is_wanted,
                        );
                    }
                    _ => {}
                });
                read.await.map_err(|error| error.to_string())?;
                bounded(exists.then_some(found))
            }
        }
    }
}

/// Returns what `select` makes of the elements of a map; `None` if the map does not exist.
pub(super) async fn map_entries<T: Send + 'static>(
    table: NftablesTable,
    map: &'static str,
    select: impl Fn(MapEntry) -> Option<T> + Send + 'static,
) -> Result<Option<Vec<T>>, String> {
    let read = blocking(move |reader| {
        if reader.set(&table, map)?.is_none() {
            return Ok(Ok(None));
        }
        let mut found = Vec::new();
        reader.elements(&table, map, |element| {
            found.extend(map_entry(element).and_then(&select));
        })?;
        Ok(Ok(Some(found)))
    });
    read.await.map(Option::flatten)
}

/// Runs a read of nf_tables on a thread that may wait for the kernel; `None` if the kernel has no
/// nf_tables.
async fn blocking<T, R>(read: R) -> Result<Option<T>, String>
where
    T: Send + 'static,
    R: FnOnce(&mut NftablesReader) -> Result<Result<T, String>, NetlinkError> + Send + 'static,
{
    let read = move || match NftablesReader::open()? {
        Some(mut reader) => read(&mut reader).map(|answer| answer.map(Some)),
        None => Ok(Ok(None)),
    };
    let read = spawn_blocking(read)
        .await
        .map_err(|_panic| "the reader of nf_tables panicked".to_owned())?;
    read.map_err(|error: NetlinkError| error.to_string())?
}

fn nft_rules(
    reader: &mut NftablesReader,
    table: &NftablesTable,
    chains: &BTreeSet<String>,
    is_wanted: impl Fn(&ServiceRule) -> bool,
) -> Result<Result<Option<Vec<Placed>>, String>, NetlinkError> {
    let (mut found, mut exists) = (Vec::new(), false);
    for chain in chains {
        // The chains of an answer all exist; the first one says if there are any.
        exists = exists || reader.has_chain(table, chain)?;
        reader.rules(table, chain, |_, expressions| {
            add(
                &mut found,
                chain,
                ServiceRule::of_expressions(expressions),
                &is_wanted,
            );
        })?;
    }
    for (_, rule) in &mut found {
        resolve(reader, table, rule)?;
    }
    Ok(bounded(exists.then_some(found)))
}

fn add(
    found: &mut Vec<Placed>,
    chain: &str,
    rule: ServiceRule,
    is_wanted: impl Fn(&ServiceRule) -> bool,
) {
    if found.len() <= RULES_MAX && is_wanted(&rule) {
        found.push((chain.to_owned(), rule));
    }
}

fn bounded(found: Option<Vec<Placed>>) -> Result<Option<Vec<Placed>>, String> {
    if found.as_ref().is_some_and(|found| found.len() > RULES_MAX) {
        return Err(format!(
            "more than {RULES_MAX} rules have to do with the destination"
        ));
    }
    Ok(found)
}

/// Replaces maps by the chains in them, in the order of their keys.
fn resolve(
    reader: &mut NftablesReader,
    table: &NftablesTable,
    rule: &mut ServiceRule,
) -> Result<(), NetlinkError> {
    let mut targets = Vec::new();
    for target in std::mem::take(&mut rule.targets) {
        let Target::Map(map) = target else {
            targets.push(target);
            continue;
        };
        let mut elements: Vec<(Vec<u8>, String)> = Vec::new();
        reader.elements(table, &map, |element| {
            elements.extend(key(element).map(ordered).zip(leads_to(element)));
        })?;
        elements.sort();
        targets.extend(elements.into_iter().map(|(_, chain)| Target::Chain(chain)));
    }
    rule.targets = targets;
    Ok(())
}

/// Numbers have the byte order of the machine.
fn ordered(key: &[u8]) -> Vec<u8> {
    key.first_chunk().map_or_else(
        || key.to_vec(),
        |number| u32::from_ne_bytes(*number).to_be_bytes().to_vec(),
    )
}

fn key(element: Attributes<'_>) -> Option<&[u8]> {
    element.nested(1).and_then(|key| key.get(1))
}

fn leads_to(element: Attributes<'_>) -> Option<String> {
    element
        .nested(2)
        .and_then(|data| data.nested(2))
        .and_then(verdict_chain)
}

/// An element with the key `ipv4_addr . inet_proto . inet_service`, or the same of IPv6. Each part
/// of a key fills words of 32 bits.
fn map_entry(element: Attributes<'_>) -> Option<MapEntry> {
    let (key, chain) = (key(element)?, leads_to(element)?);
    let (address, rest) = key.split_at_checked(key.len().checked_sub(8)?)?;
    Some(MapEntry {
        address: rule::address(address)?,
        protocol: *rest.first()?,
        port: rule::port(rest.get(4..)?)?,
        comment: element.get(6).and_then(comment),
        chain,
    })
}

/// The comment in the user data of an element: attributes of a type, a length and a value, each of
/// them one byte (`NFTNL_UDATA_SET_ELEM_COMMENT` of libnftnl is zero).
fn comment(mut data: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = data {
        let (value, after) = rest.split_at_checked(usize::from(*length))?;
        if *kind == 0 {
            let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        data = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::comment;

    #[test]
    fn a_comment_is_found_among_the_user_data() {
        assert_eq!(
            comment(&[1, 1, 9, 0, 4, b'a', b'/', b'b', 0]).as_deref(),
            Some("a/b")
        );
        for damaged in [&[][..], &[0], &[0, 9, 1], &[1, 1, 5]] {
            assert_eq!(comment(damaged), None);
        }
    }
}
