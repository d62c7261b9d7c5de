//! Reads the sets and maps that rules refer to.

use std::collections::HashMap;

use flannel_netfilter::{Attributes, NftablesReader, NftablesTable};
use flannel_netlink::NetlinkError;

use super::{
    rule::{RuleReader, apply_verdict},
    set_facts::{SetFacts, Sets},
};
use crate::model::HostRule;

/// `NFT_SET_ANONYMOUS`.
const ANONYMOUS: u32 = 0x1;
/// `NFT_DATA_VERDICT`.
const VERDICT: u32 = 0xffff_ff00;
/// `NFT_SET_ELEM_INTERVAL_END`.
const END: u64 = 0x1;
/// The number of values of an anonymous set that are kept. Larger sets count as unknown.
const MOST_VALUES: usize = 4096;

/// The sets of tables of this network namespace, read when a rule refers to them.
#[derive(Debug)]
pub(super) struct KernelSets<'a> {
    reader: &'a mut NftablesReader,
    table: NftablesTable,
    known: &'a mut HashMap<(NftablesTable, String), SetFacts>,
    error: Option<NetlinkError>,
}

impl<'a> KernelSets<'a> {
    /// The sets of a table. `known` has those that rules have referred to.
    pub(super) const fn new(
        reader: &'a mut NftablesReader,
        table: NftablesTable,
        known: &'a mut HashMap<(NftablesTable, String), SetFacts>,
    ) -> Self {
        Self {
            reader,
            table,
            known,
            error: None,
        }
    }

    /// Returns the first error.
    pub(super) fn finish(self) -> Result<(), NetlinkError> {
        self.error.map_or(Ok(()), Err)
    }

    fn read(&mut self, name: &str) -> Result<SetFacts, NetlinkError> {
        let Some(set) = self.reader.set(&self.table, name)? else {
            return Ok(SetFacts::default());
        };
        let attributes = Attributes::new(&set.attributes);
        let number = |kind| attributes.number32(kind).unwrap_or_default();
        let mut sum = statements(&self.table, attributes);
        let (is_anonymous, is_verdict_map) = (set.flags & ANONYMOUS != 0, set.data_type == VERDICT);
        let mut values = Vec::new();
        if is_anonymous || is_verdict_map {
            self.reader.elements(&self.table, name, |element| {
                if let Some(verdict) = element.nested(2).and_then(|data| data.nested(2)) {
                    apply_verdict(&mut sum, verdict);
                }
                if is_anonymous && values.len() <= MOST_VALUES {
                    values.extend(Value::new(element));
                }
                limits(&self.table, element, &mut sum);
            })?;
        }
        let values = (is_anonymous && values.len() <= MOST_VALUES).then(|| ranges(values));
        Ok(SetFacts {
            key_length: number(5),
            values,
            sum,
            timeout: set.timeout,
            object_kind: number(15),
        })
    }
}

impl Sets for KernelSets<'_> {
    fn facts(&mut self, name: &str) -> SetFacts {
        let key = (self.table.clone(), name.to_owned());
        if let Some(facts) = self.known.get(&key) {
            return facts.clone();
        }
        match self.read(name) {
            Ok(facts) => {
                // An anonymous set has one rule.
                if facts.values.is_none() {
                    self.known.insert(key, facts.clone());
                }
                facts
            }
            Err(error) => {
                self.error.get_or_insert(error);
                SetFacts::default()
            }
        }
    }
}

/// A key of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Value {
    key: Vec<u8>,
    /// The last value of a range, of kernels and sets that have it in the element (Linux 5.6).
    last: Option<Vec<u8>>,
    /// The value is the first one after a range.
    is_end: bool,
}

impl Value {
    fn new(element: Attributes<'_>) -> Option<Self> {
        let value = |kind| {
            element
                .nested(kind)
                .and_then(|key| key.get(1))
                .map(<[u8]>::to_vec)
        };
        let is_end = element.number(3).is_some_and(|flags| flags & END != 0);
        Some(Self {
            key: value(1)?,
            last: value(10),
            is_end,
        })
    }
}

/// Joins the starts and ends of ranges.
fn ranges(mut values: Vec<Value>) -> Vec<(Vec<u8>, Vec<u8>)> {
    values.sort();
    let has_ranges = values.iter().any(|value| value.is_end);
    let mut found = Vec::new();
    for (place, value) in values.iter().enumerate().filter(|(_, value)| !value.is_end) {
        let last = match (&value.last, values.get(place + 1)) {
            (Some(last), _) => last.clone(),
            (None, Some(next)) if has_ranges => before(&next.key),
            (None, None) if has_ranges => vec![0xff; value.key.len()],
            (None, _) => value.key.clone(),
        };
        found.push((value.key.clone(), last));
    }
    found
}

/// The number before, in network byte order.
fn before(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    for byte in key.iter_mut().rev() {
        let (less, borrows) = byte.overflowing_sub(1);
        *byte = less;
        if !borrows {
            break;
        }
    }
    key
}

/// The statements that a set has for all elements.
fn statements(table: &NftablesTable, attributes: Attributes<'_>) -> HostRule {
    let all: Vec<_> = attributes.expressions(17, 18).collect();
    RuleReader::new(&mut NoSets, table.family, HostRule::default()).read(&all)
}

/// The limits and quotas of an element.
fn limits(table: &NftablesTable, element: Attributes<'_>, sum: &mut HostRule) {
    let all = element.expressions(7, 11);
    let found: Vec<_> = all
        .filter(|expression| ["limit", "quota"].contains(&expression.name.as_str()))
        .collect();
    if !found.is_empty() {
        let rule = RuleReader::new(&mut NoSets, table.family, HostRule::default()).read(&found);
        for part in rule.parts {
            if !sum.parts.contains(&part) {
                sum.parts.push(part);
            }
        }
    }
}

/// Statements of sets refer to no other set.
struct NoSets;

impl Sets for NoSets {
    fn facts(&mut self, _: &str) -> SetFacts {
        SetFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: u8, is_end: bool) -> Value {
        Value {
            key: vec![0, key],
            last: None,
            is_end,
        }
    }

    #[test]
    fn ranges_are_joined_from_starts_and_ends() {
        assert_eq!(
            ranges(vec![value(7, false), value(3, false)]),
            [(vec![0, 3], vec![0, 3]), (vec![0, 7], vec![0, 7])]
        );
        let joined = ranges(vec![
            value(9, true),
            value(0, true),
            value(5, false),
            value(20, false),
        ]);
        assert_eq!(
            joined,
            [(vec![0, 5], vec![0, 8]), (vec![0, 20], vec![0xff, 0xff])]
        );
        let whole = Value {
            last: Some(vec![0, 9]),
            ..value(4, false)
        };
        assert_eq!(ranges(vec![whole]), [(vec![0, 4], vec![0, 9])]);
        assert_eq!(before(&[1, 0]), [0, 0xff]);
    }
}
