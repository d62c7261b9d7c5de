//! The rule for which of several leases with one VTEP MAC is accepted. It is a property of the
//! store, because stores know different facts.
//!
//! Overlapping subnets need no such choice: in both stores the lease created first holds them.

use super::Entry;

/// The rule of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// The lease created first, whatever is written later.
    ///
    /// For Kubernetes, where a Node lasts until it is deleted, and where the server sets its
    /// creation time. Conditions of the Node, `Ready` among them, do not count: they change while
    /// its pods still run, and others may write them.
    FirstCreated,
    /// Of the leases written since the youngest was created, the one created first.
    ///
    /// For etcd, where a node renews its lease and a lease that its node left behind is not written
    /// again. A newer lease is accepted until the older lease is renewed, which shows that the
    /// older node lives; then the older lease is accepted.
    FirstRenewed,
}

impl Precedence {
    /// Returns the accepted lease; `None` without claims. Of two created together it is the one
    /// with the lexically first name.
    pub(super) fn choose<'a>(self, claims: &[&'a Entry]) -> Option<&'a Entry> {
        let youngest = claims.iter().map(|entry| entry.created).max()?;
        let is_alive = |entry: &&Entry| match self {
            Self::FirstCreated => true,
            Self::FirstRenewed => entry.modified >= youngest,
        };
        claims
            .iter()
            .copied()
            .filter(is_alive)
            .min_by_key(|entry| (entry.created, &entry.name))
    }

    /// Returns the reason why the others are refused, and the remedy. `winner` is the accepted
    /// lease, and `another` what the operator should give a node.
    pub(super) fn verdict(self, winner: &str, another: &str) -> String {
        match self {
            Self::FirstCreated => format!(
                "is that of the older Node {winner:?}, which keeps it until it is deleted; if that \
                 machine is gone, or is \
                 this one under a former name, delete the Node ({winner}), else give this node's \
                 tunnel device {another}"
            ),
            Self::FirstRenewed => format!(
                "is published by lease {winner:?} as well, which was renewed or created later; if \
                 both nodes live, give one \
                 tunnel device {another}, else delete the lease of the one that is gone"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, created: i64, modified: i64) -> Entry {
        Entry::parse(name, b"{}", created, modified)
    }

    fn chosen(precedence: Precedence, entries: &[Entry]) -> &str {
        let claims: Vec<_> = entries.iter().collect();
        &precedence.choose(&claims).expect("one of them").name
    }

    #[test]
    fn an_older_node_keeps_what_a_newer_one_claims() {
        let (old, new) = (entry("old", 5, 5), entry("new", 9, 9));
        assert_eq!(
            chosen(Precedence::FirstCreated, &[old.clone(), new.clone()]),
            "old"
        );
        assert_eq!(chosen(Precedence::FirstCreated, &[new, old]), "old");
        assert_eq!(
            chosen(
                Precedence::FirstCreated,
                &[entry("b", 5, 5), entry("a", 5, 9)]
            ),
            "a"
        );
    }

    #[test]
    fn a_lease_that_is_renewed_outlasts_a_newcomer_and_one_left_behind_does_not() {
        let rule = Precedence::FirstRenewed;
        assert_eq!(
            chosen(rule, &[entry("left", 5, 5), entry("moved", 9, 9)]),
            "moved"
        );
        assert_eq!(
            chosen(rule, &[entry("left", 5, 5), entry("moved", 9, 40)]),
            "moved"
        );
        // Its next renewal shows that the older node lives; renewals of the newcomer change nothing
        // after that.
        assert_eq!(
            chosen(rule, &[entry("alive", 5, 12), entry("clone", 9, 9)]),
            "alive"
        );
        assert_eq!(
            chosen(rule, &[entry("alive", 5, 12), entry("clone", 9, 40)]),
            "alive"
        );
        assert_eq!(
            chosen(
                rule,
                &[
                    entry("left", 2, 4),
                    entry("alive", 5, 12),
                    entry("clone", 9, 9)
                ]
            ),
            "alive"
        );
    }

    proptest! {
        /// Both rules choose one of the claims, the same one in any order.
        #[test]
        fn the_choice_does_not_depend_on_the_order(
            ages in prop::collection::vec((0..9_i64, 0..9_i64), 1..6),
        ) {
            let entries: Vec<_> = ages
                .iter()
                .enumerate()
                .map(|(at, (created, later))| entry(&at.to_string(), *created, created + later))
                .collect();
            for rule in [Precedence::FirstCreated, Precedence::FirstRenewed] {
                let mut claims: Vec<_> = entries.iter().collect();
                let forwards = rule.choose(&claims);
                claims.reverse();
                prop_assert!(forwards.is_some());
                prop_assert_eq!(forwards, rule.choose(&claims));
            }
        }
    }
}
