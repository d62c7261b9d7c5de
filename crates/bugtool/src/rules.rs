//! The rules of the host, also those of other programs: mode `fast` repeats them.
//!
//! Kube-proxy writes tens of thousands. So lines are taken one by one, up to a bound, and the free
//! text in those of others is left out: it may be anything.

use std::{fmt::Write as _, path::PathBuf, sync::LazyLock};

use anyhow::Context as _;
use flannel_firewall_tools::tool;
use regex::Regex;

use crate::PIECE_MAX;

/// The engines, the usual one of the host first. A host has rules of several while it moves from
/// one to another.
const TOOLS: [(&str, &str, &[&str]); 7] = [
    ("rules/nft.txt", "nft", &["list", "ruleset"]),
    ("rules/iptables.txt", "iptables-save", &["-c"]),
    ("rules/ip6tables.txt", "ip6tables-save", &["-c"]),
    ("rules/iptables-legacy.txt", "iptables-legacy-save", &["-c"]),
    (
        "rules/ip6tables-legacy.txt",
        "ip6tables-legacy-save",
        &["-c"],
    ),
    ("rules/iptables-nft.txt", "iptables-nft-save", &["-c"]),
    ("rules/ip6tables-nft.txt", "ip6tables-nft-save", &["-c"]),
];
/// The tools that every host has, one of them at least.
const USUAL: usize = 3;

/// Free text in a rule of iptables or nftables.
static FREE_TEXT: LazyLock<Regex> = LazyLock::new(|| {
    let iptables = "--(?:comment|log-prefix|nflog-prefix|ulog-prefix|string|hex-string)";
    let quoted = r#""(?:[^"\\]|\\.)*""#;
    let pattern = format!(
        r#"(?P<iptables>{iptables}) (?:{quoted}|[^\s"]+)|(?P<nft>\b(?:comment|prefix)) {quoted}"#
    );
    Regex::new(&pattern).expect("a pattern")
});

/// The tools to run: the file in the archive, the tool, its arguments. One that is the same program
/// as an earlier one, by another name, is left out.
pub fn tools() -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    let mut known: Vec<PathBuf> = Vec::new();
    let mut tools = Vec::new();
    for (place, (file, name, args)) in TOOLS.into_iter().enumerate() {
        let program = tool::find(name).and_then(|path| path.canonicalize().ok());
        let variant = program.map(|program| {
            program
                .with_file_name(family(name))
                .join(program.file_name().unwrap_or_default())
        });
        let is_new = variant
            .as_ref()
            .is_some_and(|variant| !known.contains(variant));
        if place < USUAL || is_new {
            tools.push((file, name, args));
        }
        known.extend(variant);
    }
    tools
}

/// One program lists the rules of both families, by the name it is called by.
fn family(name: &str) -> &'static str {
    if name.starts_with("ip6") {
        "ipv6"
    } else {
        "ipv4"
    }
}

/// The rules that a tool lists.
pub async fn list(tool: &str, args: &[&str]) -> anyhow::Result<String> {
    let path = tool::find(tool).with_context(|| format!("{tool} is not installed"))?;
    let mut rules = Bounded::default();
    tool::each_line(&path, args, |line| rules.push(&without_free_text(line))).await?;
    Ok(rules.finish())
}

/// Lines up to a number of bytes, and the number of those behind.
#[derive(Default)]
struct Bounded {
    text: String,
    left_out: usize,
}

impl Bounded {
    fn push(&mut self, line: &str) {
        // Room for the last line.
        if self.left_out > 0 || self.text.len() + line.len() + 100 > PIECE_MAX {
            self.left_out += 1;
            return;
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn finish(mut self) -> String {
        if self.left_out > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "[cut off here: {} more lines]", self.left_out);
        }
        self.text
    }
}

/// The line without its comments and prefixes, unless it is one of flannel's.
fn without_free_text(line: &str) -> String {
    if line.to_ascii_lowercase().contains("flannel") {
        return line.to_owned();
    }
    FREE_TEXT
        .replace_all(line, r#"${iptables}${nft} "...""#)
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stay_and_free_text_of_others_goes() {
        for (line, expected) in [
            (
                r#"[1:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https \" x" -m tcp --dport 443 -j KUBE-SVC"#,
                r#"[1:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "..." -m tcp --dport 443 -j KUBE-SVC"#,
            ),
            (
                "-A FORWARD -m comment --comment hunter2 -j ACCEPT",
                r#"-A FORWARD -m comment --comment "..." -j ACCEPT"#,
            ),
            (
                r#"-A X -j LOG --log-prefix "a b: ""#,
                r#"-A X -j LOG --log-prefix "...""#,
            ),
            (
                r#"		tcp dport 443 counter packets 1 bytes 60 comment "a b" log prefix "c d" jump y"#,
                r#"		tcp dport 443 counter packets 1 bytes 60 comment "..." log prefix "..." jump y"#,
            ),
            (r#"		iifname "eth0" accept"#, r#"		iifname "eth0" accept"#),
            (
                r#"-A F -m comment --comment "flanneld forward" -j ACCEPT"#,
                r#"-A F -m comment --comment "flanneld forward" -j ACCEPT"#,
            ),
        ] {
            assert_eq!(without_free_text(line), expected);
        }
    }

    #[test]
    fn rules_behind_the_bound_are_counted() {
        let mut rules = Bounded::default();
        for _ in 0..200_000 {
            rules.push(&"r".repeat(99));
        }
        let text = rules.finish();
        assert!(
            text.len() <= PIECE_MAX && text.len() > PIECE_MAX - 300,
            "{}",
            text.len()
        );
        let lines = text.lines().count() - 1;
        assert!(
            text.ends_with(&format!("[cut off here: {} more lines]\n", 200_000 - lines)),
            "{lines}"
        );
    }
}
