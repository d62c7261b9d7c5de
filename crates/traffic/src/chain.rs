//! The found and the wanted content of a chain. Pure, and the same for both engines.

use ipnet::IpNet;

/// The mark by which a rule inside our chains counts as ours, in addition to those that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ours {
    /// Rules that name one of these networks and have this remark, where the engine's rules have
    /// one.
    Naming {
        networks: Vec<IpNet>,
        remark: Option<&'static str>,
    },
    /// All rules in the chain.
    All,
}

impl Ours {
    pub(super) fn has(&self, rule: &str) -> bool {
        match self {
            Self::Naming { networks, remark } => {
                let mut words = rule.split_whitespace();
                remark.is_none_or(|remark| rule.contains(remark))
                    && words
                        .any(|word| word.parse().is_ok_and(|net: IpNet| networks.contains(&net)))
            }
            Self::All => true,
        }
    }
}

/// Returns the wanted content of a chain: `wanted` in its order, at the position of the rules of
/// ours, with foreign rules around it. `None` if that is the content already.
pub(super) fn content(found: &[String], wanted: &[String], ours: &Ours) -> Option<Vec<String>> {
    let is_ours = |rule: &&String| wanted.contains(rule) || ours.has(rule);
    if found.iter().filter(is_ours).eq(wanted) {
        return None;
    }
    let start = found
        .iter()
        .position(|rule| is_ours(&rule))
        .unwrap_or(found.len());
    let (before, after) = found.split_at(start);
    let after = after.iter().filter(|rule| !is_ours(rule));
    Some(before.iter().chain(wanted).chain(after).cloned().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(';')
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn ours() -> Ours {
        Ours::Naming {
            networks: vec!["10.244.0.0/16".parse().expect("a network")],
            remark: None,
        }
    }

    fn contents(found: &str, wanted: &str) -> Option<String> {
        content(&lines(found), &lines(wanted), &ours()).map(|lines| lines.join(";"))
    }

    #[test]
    fn what_is_right_stays_also_among_rules_of_others() {
        let wanted = "mark RETURN;-s 10.244.0.0/16 X";
        assert_eq!(contents(wanted, wanted), None);
        assert_eq!(
            contents(
                "theirs;mark RETURN;-s 10.5.0.0/16 X;-s 10.244.0.0/16 X",
                wanted
            ),
            None
        );
    }

    #[test]
    fn missing_doubled_misplaced_and_stale_rules_are_repaired() {
        let wanted = "a;-s 10.244.0.0/16 X";
        for found in [
            "",
            "a",
            "-s 10.244.0.0/16 X",
            "-s 10.244.0.0/16 X;a",
            "a;a;-s 10.244.0.0/16 X",
            "a;-s 10.244.0.0/16 Y",
        ] {
            assert_eq!(contents(found, wanted).as_deref(), Some(wanted), "{found}");
        }
    }

    #[test]
    fn rules_of_others_keep_their_place() {
        assert_eq!(
            contents("first;a;last", "a;b").as_deref(),
            Some("first;a;b;last")
        );
        assert_eq!(
            contents("first;-d 10.244.0.0/16 old;last", "").as_deref(),
            Some("first;last")
        );
        assert_eq!(contents("first", "").as_deref(), None);
    }

    #[test]
    fn a_rule_without_the_remark_is_somebody_elses() {
        let Ours::Naming { networks, .. } = ours() else {
            unreachable!("as made above")
        };
        let ours = Ours::Naming {
            networks,
            remark: Some("flanneld"),
        };
        assert!(ours.has("-s 10.244.0.0/16 --comment flanneld"));
        assert!(!ours.has("-s 10.244.0.0/16") && !ours.has("-s 10.5.0.0/16 --comment flanneld"));
    }

    #[test]
    fn everything_may_be_ours() {
        assert_eq!(content(&lines("x;y"), &[], &Ours::All), Some(Vec::new()));
        assert_eq!(content(&[], &[], &Ours::All), None);
    }

    proptest! {
        #[test]
        fn a_repair_is_idempotent_and_keeps_others(
            found in "[abcxyz;]{0,12}",
            wanted in "[abc]{0,3}",
        ) {
            let mut wanted: Vec<String> = wanted.chars().map(String::from).collect();
            wanted.dedup();
            let found = lines(&found);
            let repaired = content(&found, &wanted, &ours()).unwrap_or_else(|| found.clone());
            prop_assert_eq!(content(&repaired, &wanted, &ours()), None);
            let others = |lines: &[String]| {
                lines
                    .iter()
                    .filter(|line| !wanted.contains(line))
                    .cloned()
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(others(&found), others(&repaired));
        }
    }
}
