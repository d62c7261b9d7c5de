//! The peers that have fallen silent, for the log and for those who watch the whole cluster. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_host::words::first;

/// The peers that are named in one line of the log.
const NAMED: usize = 5;

/// The peers that answered and do not any more: their names by the address that is asked.
#[derive(Debug, Default)]
pub(super) struct SilentPeers(BTreeMap<IpAddr, String>);

/// The changes of a second, in words; `None` where there are none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SilenceChange {
    pub(super) begun: Option<String>,
    pub(super) ended: Option<String>,
}

impl SilentPeers {
    /// Returns true if these are the peers that are known already.
    pub(super) fn is_of(&self, silent: &[IpAddr]) -> bool {
        self.0.keys().eq(silent)
    }

    /// The names.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.values()
    }

    /// Takes in the peers that are silent now.
    pub(super) fn update(&mut self, now: BTreeMap<IpAddr, String>) -> SilenceChange {
        let before = std::mem::replace(&mut self.0, now);
        let only_in = |these: &BTreeMap<IpAddr, String>, those: &BTreeMap<IpAddr, String>| {
            let names = these
                .iter()
                .filter(|(address, _)| !those.contains_key(address))
                .map(|(_, name)| name);
            let names: Vec<_> = names.collect();
            (!names.is_empty()).then(|| first(&names, NAMED))
        };
        SilenceChange {
            begun: only_in(&self.0, &before),
            ended: only_in(&before, &self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peers(numbers: impl IntoIterator<Item = u32>) -> BTreeMap<IpAddr, String> {
        numbers
            .into_iter()
            .map(|number| (Ipv4Addr::from_bits(number).into(), format!("n{number}")))
            .collect()
    }

    #[test]
    fn each_beginning_and_each_end_is_named_once() {
        let mut silence = SilentPeers::default();
        let change = |begun: Option<&str>, ended: Option<&str>| SilenceChange {
            begun: begun.map(str::to_owned),
            ended: ended.map(str::to_owned),
        };
        assert_eq!(silence.update(peers([1, 2])), change(Some("n1, n2"), None));
        assert!(
            silence.is_of(&peers([1, 2]).into_keys().collect::<Vec<_>>()) && !silence.is_of(&[])
        );
        assert_eq!(silence.update(peers([1, 2])), SilenceChange::default());
        assert_eq!(
            silence.update(peers([2, 3])),
            change(Some("n3"), Some("n1"))
        );
        assert_eq!(silence.names().collect::<Vec<_>>(), ["n2", "n3"]);
        assert_eq!(
            silence.update(peers(3..20)).begun.as_deref(),
            Some("n4, n5, n6, n7, n8 and 11 more")
        );
    }
}
