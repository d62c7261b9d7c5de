//! What does not leave the node: passwords, tokens, keys. Pure.
//!
//! Nothing that is collected should have any; this is the second lock on the door. It rather takes too much.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

/// What stands in the place of a secret.
const REDACTED: &str = "REDACTED";

/// Patterns of secrets; the group `keep` stays, and so does `end`.
const PATTERNS: [&str; 6] = [
    // A flag or variable with its value, in one word or two.
    r#"(?i)(?P<keep>(?:--?|_)[a-z0-9_-]*(?:password|passwd|secret|token|credential)[a-z0-9_-]*(?:=|\s+|\x00)"?)[^\s"\x00]+"#,
    // A member of a JSON or YAML document.
    r#"(?i)(?P<keep>"?[a-z0-9_-]*(?:password|passwd|secret|token|client-key-data|private[_-]?key)"?\s*:\s*"?)[^\s",}]+"#,
    // The user in a URL, with the password.
    r"(?P<keep>[a-z][a-z0-9+.-]*://)[^/@\s]+@",
    // The keys of PEM files.
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    // Tokens of service accounts, and others of that form.
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?i)(?P<keep>bearer\s+)[^\s]+",
];

static SECRETS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| PATTERNS.iter().map(|pattern| Regex::new(pattern).expect("a pattern")).collect());

/// The text without its secrets.
pub(super) fn redacted(text: &str) -> String {
    let replacement = format!("${{keep}}{REDACTED}");
    let without = |text: String, secret: &Regex| match secret.replace_all(&text, replacement.as_str()) {
        Cow::Borrowed(_) => text,
        Cow::Owned(changed) => changed,
    };
    SECRETS.iter().fold(text.to_owned(), without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_and_the_rest_stays() {
        for (text, expected) in [
            ("run\0--etcd-password=hunter2\0--iface=eth0", "run\0--etcd-password=REDACTED\0--iface=eth0"),
            ("run --etcd-password hunter2 -v=4", "run --etcd-password REDACTED -v=4"),
            ("FLANNELD_ETCD_PASSWORD=hunter2", "FLANNELD_ETCD_PASSWORD=REDACTED"),
            (
                r#"{"endpoints": ["http://root:hunter2@10.0.0.1:2379"]}"#,
                r#"{"endpoints": ["http://REDACTED10.0.0.1:2379"]}"#,
            ),
            (r#"{"password": "hunter2", "mtu": 1450}"#, r#"{"password": "REDACTED", "mtu": 1450}"#),
            ("    token: abc.def\n    server: https://10.0.0.1", "    token: REDACTED\n    server: https://10.0.0.1"),
            ("-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nrest", "REDACTED\nrest"),
            ("-----BEGIN PRIVATE KEY-----\ncut off", "REDACTED"),
            ("Authorization: Bearer abcdef", "Authorization: Bearer REDACTED"),
            ("10.244.1.0/24 via 10.244.1.0 dev flannel.1", "10.244.1.0/24 via 10.244.1.0 dev flannel.1"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }
}
