//! Redaction of secrets, which do not leave the node: passwords, tokens, keys. Pure.
//!
//! The collected files should not contain secrets; this is the second line of defence. It removes
//! too much rather than too little.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

/// The text that replaces a secret.
const REDACTED: &str = "REDACTED";

/// The names of secrets, within longer ones.
const NAMES: &str = "(?:password|passwd|passphrase|secret|token|credential|psk|api[_-]?key|\
    client-key-data|private[_-]?key)";

/// Patterns of secrets, in which `NAME` stands for a name with one of [`NAMES`]; the group `keep`
/// stays, and so does `end`.
const PATTERNS: [&str; 11] = [
    // A flag or variable with its value, in one word or two.
    r#"(?i)(?P<keep>(?:--?|_)NAME(?:=|\s+|\x00)"?)[^\s"\x00]+"#,
    // A name and a value in quotes: a member of a JSON or YAML document, a word of a rule's
    // comment.
    r#"(?i)(?P<keep>NAME"?(?:\s*[:=]\s*|\s+)")(?:[^"\\\n]|\\.)+"#,
    r"(?i)(?P<keep>NAME'?(?:\s*[:=]\s*|\s+)')[^'\n]+",
    // The same within quotes.
    r#"(?i)(?P<keep>NAME(?:\\")?(?:\s*[:=]\s*|\s+)\\")[^"\\\n]+"#,
    // A value without quotes.
    r#"(?i)(?P<keep>NAME\s*=\s*)[^\s"'\\\x00]+"#,
    r#"(?i)(?P<keep>NAME(?:\\?["'])?\s*:\s*)[^\s"'\\,}\x00]+"#,
    // A value behind its name, if it looks like one: it has a digit.
    r#"(?i)(?P<keep>\b(?:password|passwd|passphrase|secret)\s+(?:is\s+)?)[^\s"'0-9]*[0-9][^\s"']*"#,
    // The user in a URL, with the password.
    r#"(?P<keep>[a-z][a-z0-9+.-]*://)[^@\s",]+(?P<end>@)"#,
    // The keys of PEM files.
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    // Tokens of service accounts, and others of that form.
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?i)(?P<keep>bearer\s+)[^\s]+",
];

static SECRETS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let name = format!("[a-z0-9_.-]*{NAMES}[a-z0-9_.-]*");
    PATTERNS
        .iter()
        .map(|pattern| Regex::new(&pattern.replace("NAME", &name)).expect("a pattern"))
        .collect()
});

/// The text without its secrets.
pub fn redacted(text: &str) -> String {
    let replacement = format!("${{keep}}{REDACTED}${{end}}");
    let without =
        |text: String, secret: &Regex| match secret.replace_all(&text, replacement.as_str()) {
            Cow::Borrowed(_) => text,
            Cow::Owned(changed) => changed,
        };
    SECRETS.iter().fold(text.to_owned(), without)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET_TEXTS: [(&str, &str); 18] = [
        (
            "run\0--etcd-password=hunter2\0--iface=eth0",
            "run\0--etcd-password=REDACTED\0--iface=eth0",
        ),
        (
            "run --etcd-password hunter2 -v=4",
            "run --etcd-password REDACTED -v=4",
        ),
        (
            "FLANNELD_ETCD_PASSWORD=hunter2",
            "FLANNELD_ETCD_PASSWORD=REDACTED",
        ),
        (
            r#"{"endpoints": ["http://root:hunter2@10.0.0.1:2379"]}"#,
            r#"{"endpoints": ["http://REDACTED@10.0.0.1:2379"]}"#,
        ),
        (
            r#"{"password": "hunter2", "mtu": 1450}"#,
            r#"{"password": "REDACTED", "mtu": 1450}"#,
        ),
        (
            "    token: abc.def\n    server: https://10.0.0.1",
            "    token: REDACTED\n    server: https://10.0.0.1",
        ),
        (
            "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nrest",
            "REDACTED\nrest",
        ),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "REDACTED"),
        (
            "Authorization: Bearer abcdef",
            "Authorization: Bearer REDACTED",
        ),
        (
            r#"-A FORWARD -m comment --comment "flannel password=IptSecret99" -j ACCEPT"#,
            r#"-A FORWARD -m comment --comment "flannel password=REDACTED" -j ACCEPT"#,
        ),
        (
            r#"--comment "flannel api_key: IptSecret99" -j DROP"#,
            r#"--comment "flannel api_key: REDACTED" -j DROP"#,
        ),
        (
            r#"--comment "flannel password=a,b};c" -j DROP"#,
            r#"--comment "flannel password=REDACTED" -j DROP"#,
        ),
        (
            r#"--comment "flannel Password = \"two words\"" -j X"#,
            r#"--comment "flannel Password = \"REDACTED\"" -j X"#,
        ),
        (
            r#"--comment "flannel password is hunter2" -j X"#,
            r#"--comment "flannel password is REDACTED" -j X"#,
        ),
        (
            r#"comment "flannel dbPassword='two words' of x""#,
            r#"comment "flannel dbPassword='REDACTED' of x""#,
        ),
        (
            r#"{"password": "with \" and blanks", "mtu": 1}"#,
            r#"{"password": "REDACTED", "mtu": 1}"#,
        ),
        (
            r#"{"log": "{\"token\":\"hunter2\"}"}"#,
            r#"{"log": "{\"token\":\"REDACTED\"}"}"#,
        ),
        ("https://u:p/w@10.0.0.1/x", "https://REDACTED@10.0.0.1/x"),
    ];

    #[test]
    fn secrets_are_taken_out_and_the_rest_stays() {
        for (text, expected) in SECRET_TEXTS {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn what_is_no_secret_is_left() {
        for text in [
            "10.244.1.0/24 via 10.244.1.0 dev flannel.1",
            r#"-A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT"#,
            r#"-A INPUT -m comment --comment "flannel: token bucket of 5 per second" -j ACCEPT"#,
            r#"-A INPUT -m comment --comment "flannel password authentication" -m limit --limit 5/s -j ACCEPT"#,
            r#"{"endpoints": ["https://10.0.0.1:2379", "https://10.0.0.2:2379"], "peers": 2}"#,
            "net/netfilter/nf_conntrack_tcp_be_liberal = 1",
            "qdisc tbf 1: dev eth0 root rate 1Gbit burst 5Kb peakrate 2Gbit",
            "passed 5 packets, compass=12",
        ] {
            assert_eq!(redacted(text), text);
        }
    }
}
