//! What `iptables-save` prints. Pure.

use super::{Chain, Hook, Rule, Ruleset};

/// Matches that look at single packets, or count them.
pub(super) const PER_PACKET: [&str; 9] =
    ["quota", "limit", "hashlimit", "string", "u32", "length", "statistic", "connbytes", "rateest"];

/// The rules of one family (`ip`, `ip6`).
pub(super) fn parse(family: &str, text: &str) -> Ruleset {
    let (mut found, mut table) = (Ruleset::default(), String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = format!("{family} {name}");
        } else if let Some(chain) = line.strip_prefix(':') {
            found.chains.extend(self::chain(&table, chain));
        } else if let Some(rule) = line.strip_prefix("-A ") {
            found.rules.extend(self::rule(&table, rule));
        }
    }
    found
}

/// `FORWARD DROP [0:0]`; a chain that others call has no policy.
fn chain(table: &str, line: &str) -> Option<Chain> {
    let mut words = line.split_ascii_whitespace();
    let (name, policy) = (words.next()?, words.next()?);
    let hook = (policy != "-").then(|| Hook {
        at: name.to_ascii_lowercase(),
        nat: table.ends_with(" nat"),
        drops: policy == "DROP",
    });
    Some(Chain { table: table.to_owned(), name: name.to_owned(), hook })
}

fn rule(table: &str, line: &str) -> Option<Rule> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let mut rule = Rule { table: table.to_owned(), chain: (*words.first()?).to_owned(), ..Rule::default() };
    for pair in words.windows(2) {
        match pair {
            ["-m", name] => rule.per_packet.extend(PER_PACKET.iter().find(|known| *known == name)),
            ["-j", "DROP" | "REJECT"] => rule.drops = true,
            ["-j" | "-g", target] => rule.targets.extend([(*target).to_owned()]),
            ["--dport" | "--dports", ports] => {
                rule.ports.extend(ports.split(',').filter_map(|port| port.parse::<u16>().ok()));
            }
            _ => {}
        }
    }
    Some(rule)
}
