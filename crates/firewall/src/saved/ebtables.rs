//! The lines of `ebtables-save`. Pure.

use super::{
    super::{
        catalogue::{Element, ElementFacts, ElementKind},
        model::{ChainHook, HostRule},
    },
    built_in::built_in,
};

/// The hooks of bridges.
const HOOKS: [&str; 6] = [
    "PREROUTING",
    "INPUT",
    "FORWARD",
    "OUTPUT",
    "POSTROUTING",
    "BROUTING",
];
/// Options that stand for themselves: conditions on a frame's way and addresses.
const BASE: [&str; 6] = [
    "--logical-in",
    "--logical-out",
    "--proto",
    "--in-interface",
    "--out-interface",
    "--concurrent",
];

/// `FORWARD ACCEPT`; chains that others call have a policy as well.
pub(super) fn hook(name: &str, policy: &str) -> Option<ChainHook> {
    HOOKS
        .contains(&name)
        .then(|| built_in(name, false, policy.trim() == "DROP"))
}

pub(super) fn rule(table: &str, chain: &str, words: &[&str]) -> HostRule {
    let mut rule = HostRule::new(table, chain);
    let end = words
        .iter()
        .position(|word| *word == "-j")
        .unwrap_or(words.len());
    let (matches, target) = words.split_at(end);
    for module in modules(matches) {
        rule.add(&Element::new(
            ElementKind::Bridge,
            module,
            ElementFacts::Words(matches),
        ));
    }
    if let ["-j", name, options @ ..] = target {
        rule.drops = *name == "DROP";
        if ElementKind::Bridge.knows(name) || !options.is_empty() {
            rule.add(&Element::new(
                ElementKind::Bridge,
                name,
                ElementFacts::Words(options),
            ));
        } else {
            rule.targets.insert((*name).to_owned());
        }
    }
    rule
}

/// The extensions options belong to, each once: `--ip-proto` is one of `ip`.
fn modules<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let options = words
        .iter()
        .filter(|word| !BASE.contains(word))
        .filter_map(|word| word.strip_prefix("--"));
    let mut modules: Vec<&str> = options
        .map(|option| option.split('-').next().unwrap_or(option))
        .collect();
    modules.dedup();
    modules
}

#[cfg(test)]
mod tests {
    use flannel_firewall_tools::words;

    use super::{super::labels, *};

    #[test]
    fn options_are_those_of_their_extensions() {
        for (line, expected) in [
            (
                "-p IPv4 --logical-in br0 --ip-proto udp --limit 5/sec --limit-burst 5 --log-level \
                 notice \
                 --log-prefix \"a --nflog b\" -j DROP",
                vec!["limit", "log"],
            ),
            ("-p IPv4 --ip-src 10.0.0.1 -j mine", vec![]),
            (
                "-p IPv4 --ip-tos 0x10 --among-dst 00:00:00:00:00:01, -j ACCEPT",
                vec!["traffic class"],
            ),
            (
                "--mark 0x1 -j mark --mark-set 0x2 --mark-target ACCEPT",
                vec![],
            ),
            ("--foo 1 -j CONTINUE", vec!["unknown bridge extension foo"]),
            ("-j foo --bar", vec!["unknown bridge extension foo"]),
        ] {
            let words = words::split(line);
            let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
            let rule = rule("bridge filter", "FORWARD", &words);
            assert_eq!(labels(&rule), expected, "{line}");
            assert_eq!(rule.drops, line.ends_with("DROP"));
            assert_eq!(rule.targets.contains("mine"), line.ends_with("mine"));
        }
    }

    #[test]
    fn hooks_are_built_in_chains_alone() {
        assert_eq!(hook("FORWARD", "DROP").map(|hook| hook.drops), Some(true));
        assert_eq!(hook("mine", "ACCEPT"), None);
    }
}
