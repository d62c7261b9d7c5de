//! The `CNI_*` variables of a call ([the specification's
//! parameters](https://www.cni.dev/docs/spec/#parameters)): which verb needs which, and what their
//! values may be.

use std::{env, ffi::OsString, path::PathBuf};

use crate::error::Error;

/// The operation the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Verb {
    const ALL: [Self; 6] = [
        Self::Add,
        Self::Del,
        Self::Check,
        Self::Gc,
        Self::Status,
        Self::Version,
    ];

    /// As in CNI_COMMAND.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &[CONTAINER_ID, NETNS, IFNAME, PATH],
            Self::Del => &[CONTAINER_ID, IFNAME, PATH],
            Self::Gc | Self::Status => &[PATH],
            Self::Version => &[],
        }
    }
}

/// The variable with the verb.
pub(crate) const COMMAND: &str = "CNI_COMMAND";
/// The variable with the container's id.
pub(crate) const CONTAINER_ID: &str = "CNI_CONTAINERID";
/// The variable with the path of the container's network namespace.
pub(crate) const NETNS: &str = "CNI_NETNS";
/// The variable with the interface's name.
pub(crate) const IFNAME: &str = "CNI_IFNAME";
const PATH: &str = "CNI_PATH";

/// The variables of one call, valid. CNI_ARGS is the delegate's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// CNI_COMMAND.
    pub(crate) verb: Verb,
    /// CNI_CONTAINERID; empty for GC and STATUS.
    pub(crate) container_id: String,
    /// CNI_IFNAME; empty for GC and STATUS.
    pub(crate) ifname: String,
    /// CNI_NETNS, as given: it may name anything; `None` if it is empty.
    pub(crate) netns: Option<PathBuf>,
    /// CNI_PATH: where plugins are.
    pub(crate) path: Vec<PathBuf>,
}

impl Environment {
    /// Reads the variables through `var`.
    pub(crate) fn read(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let text = |name: &str| match var(name).map(OsString::into_string) {
            Some(Ok(text)) => Ok(text),
            Some(Err(other)) => Err(Error::Environment(format!(
                "{name} is not UTF-8: {}",
                other.display()
            ))),
            None => Ok(String::new()),
        };
        let command = text(COMMAND)?;
        let verb = Verb::ALL.into_iter().find(|verb| verb.name() == command);
        let verb =
            verb.ok_or_else(|| Error::Environment(format!("unknown {COMMAND}: {command}")))?;
        let is_absent = |name: &&str| var(name).is_none_or(|value| value.is_empty());
        let missing: Vec<&str> = verb.needs().iter().copied().filter(is_absent).collect();
        if !missing.is_empty() {
            return Err(Error::Environment(format!(
                "required env variables [{}] missing",
                missing.join(",")
            )));
        }
        let (mut container_id, mut ifname) = (String::new(), String::new());
        if verb.needs().contains(&CONTAINER_ID) {
            (container_id, ifname) = (text(CONTAINER_ID)?, text(IFNAME)?);
            check(CONTAINER_ID, &container_id, is_identifier(&container_id))?;
            check(IFNAME, &ifname, is_ifname(&ifname))?;
        }
        let netns = var(NETNS)
            .filter(|netns| !netns.is_empty())
            .map(PathBuf::from);
        let path = var(PATH).unwrap_or_default();
        let dirs = env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty());
        Ok(Self {
            verb,
            container_id,
            ifname,
            netns,
            path: dirs.collect(),
        })
    }
}

fn check(name: &str, value: &str, is_valid: bool) -> Result<(), Error> {
    if is_valid {
        Ok(())
    } else {
        Err(Error::Environment(format!("invalid {name} {value:?}")))
    }
}

/// Returns true if [the specification](https://www.cni.dev/docs/spec/#parameters) allows the text
/// as a container id or a network name.
pub(crate) fn is_identifier(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(rest)
}

/// Returns true if Linux allows the text as a device name (`dev_valid_name()` in [net/core/dev.c,
/// Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c)).
pub(crate) fn is_ifname(text: &str) -> bool {
    (1..16).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, Error> {
        let value = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        };
        Environment::read(value)
    }

    fn refusal(variables: &[(&str, &str)]) -> String {
        let error = read(variables).expect_err("refused");
        assert_eq!(error.code(), 4);
        error.to_string()
    }

    const ADD: [(&str, &str); 5] = [
        (COMMAND, "ADD"),
        (CONTAINER_ID, "a1"),
        (NETNS, "/run/netns/x"),
        (IFNAME, "eth0"),
        (PATH, "/a::/b"),
    ];

    #[test]
    fn each_verb_names_what_it_misses() {
        for (verb, missing) in [
            ("ADD", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
            ("CHECK", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
            ("DEL", "CNI_CONTAINERID,CNI_IFNAME,CNI_PATH"),
            ("GC", "CNI_PATH"),
            ("STATUS", "CNI_PATH"),
        ] {
            let expected = format!("required env variables [{missing}] missing");
            assert_eq!(refusal(&[(COMMAND, verb), (NETNS, "")]), expected, "{verb}");
        }
        assert_eq!(refusal(&[(COMMAND, "add")]), "unknown CNI_COMMAND: add");
        assert!(read(&[(COMMAND, "VERSION")]).is_ok());
    }

    #[test]
    fn values_are_examined_where_they_count() {
        let environment = read(&ADD).expect("a good call");
        assert_eq!(
            (
                environment.container_id.as_str(),
                environment.ifname.as_str()
            ),
            ("a1", "eth0")
        );
        assert_eq!(environment.path, [PathBuf::from("/a"), PathBuf::from("/b")]);
        for (name, bad) in [
            (CONTAINER_ID, "../x"),
            (CONTAINER_ID, "-a"),
            (IFNAME, "a/b"),
            (IFNAME, "sixteen-letters-"),
        ] {
            let variables =
                ADD.map(|(known, value)| (known, if known == name { bad } else { value }));
            assert_eq!(refusal(&variables), format!("invalid {name} {bad:?}"));
        }
        assert!(read(&[(COMMAND, "GC"), (PATH, "/a"), (CONTAINER_ID, "../x")]).is_ok());
    }

    #[test]
    fn names_are_the_kernels_and_the_specifications() {
        for good in ["a", "A-b_c.9", "9"] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in ["", ".a", "a/b", "a:b", "a b", "\u{e4}"] {
            assert!(!is_identifier(bad), "{bad}");
        }
        for bad in ["", ".", "..", "a:b", "a b", "a\tb"] {
            assert!(!is_ifname(bad), "{bad}");
        }
        assert!(is_ifname("eth0.100@x"));
    }
}
