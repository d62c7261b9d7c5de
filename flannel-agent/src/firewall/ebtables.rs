//! The reader of `ebtables-save`. Pure.

use super::{
    catalogue::{Element, ElementFacts, ElementKind},
    dump,
    model::{ChainHook, HostChain, HostRule, Ruleset},
};

/// The hooks of bridges.
const HOOKS: [&str; 6] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING", "BROUTING"];
/// Options that stand for themselves: conditions on a frame's way and addresses.
const BASE: [&str; 6] =
    ["--logical-in", "--logical-out", "--proto", "--in-interface", "--out-interface", "--concurrent"];

/// The rules of all bridges.
pub(super) fn parse(text: &str) -> Ruleset {
    let mut found = dump::read("bridge", text, chain, rule);
    found.settle_targets(ElementKind::Bridge);
    found
}

/// `FORWARD ACCEPT`; chains that others call have a policy as well.
fn chain(table: &str, name: &str, policy: &str) -> HostChain {
    let hook = HOOKS.contains(&name).then(|| ChainHook {
        at: name.to_ascii_lowercase(),
        nat: false,
        drops: policy.trim() == "DROP",
        devices: Vec::new(),
    });
    HostChain { table: table.to_owned(), name: name.to_owned(), hook }
}

fn rule(table: &str, chain: &str, words: &[&str]) -> HostRule {
    let mut rule = HostRule::new(table, chain);
    let end = words.iter().position(|word| *word == "-j").unwrap_or(words.len());
    let (matches, target) = words.split_at(end);
    for module in modules(matches) {
        rule.add(&Element::new(ElementKind::Bridge, module, ElementFacts::Words(matches)));
    }
    if let ["-j", name, options @ ..] = target {
        rule.drops = *name == "DROP";
        if ElementKind::Bridge.knows(name) || !options.is_empty() {
            rule.add(&Element::new(ElementKind::Bridge, name, ElementFacts::Words(options)));
        } else {
            rule.targets.insert((*name).to_owned());
        }
    }
    rule
}

/// The extensions options belong to, each once: `--ip-proto` is one of `ip`.
fn modules<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let options = words.iter().filter(|word| !BASE.contains(word)).filter_map(|word| word.strip_prefix("--"));
    let mut modules: Vec<&str> = options.map(|option| option.split('-').next().unwrap_or(option)).collect();
    modules.dedup();
    modules
}

#[cfg(test)]
mod tests {
    use super::{super::model::Part, *};

    const SAVED: &str = "\
*filter
:INPUT ACCEPT
:FORWARD DROP
:OUTPUT ACCEPT
:mine ACCEPT
-A FORWARD -p IPv4 --logical-in br0 --ip-proto udp --limit 5/sec --limit-burst 5 --log-level notice --log-prefix \"a --nflog b\" -j DROP
-A FORWARD -p IPv4 --ip-src 10.0.0.1 -j mine
-A mine -p IPv4 --ip-tos 0x10 --among-dst 00:00:00:00:00:01, -j ACCEPT
-A mine --mark 0x1 -j mark --mark-set 0x2 --mark-target ACCEPT
-A mine --foo 1 -j CONTINUE
-A mine -j foo --bar
";

    fn labels(rule: &HostRule) -> Vec<&str> {
        let mut labels = Vec::new();
        for part in &rule.parts {
            if let Part::PerPacket(label) = part {
                labels.push(label.as_str());
            }
        }
        labels
    }

    #[test]
    fn options_are_those_of_their_extensions() {
        let found = parse(SAVED);
        let labels: Vec<Vec<&str>> = found.rules.iter().map(labels).collect();
        assert_eq!(
            labels,
            [
                vec!["limit", "log"],
                vec![],
                vec!["traffic class"],
                vec![],
                vec!["unknown bridge extension foo"],
                vec!["unknown bridge extension foo"],
            ]
        );
        assert!(found.rules[0].drops && found.rules[1].targets.contains("mine"));
        let hooked: Vec<bool> = found.chains.iter().map(|chain| chain.hook.is_some()).collect();
        assert_eq!(hooked, [true, true, true, false]);
    }
}
