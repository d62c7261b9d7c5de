//! The names of our keys in etcd.

use std::borrow::Cow;

use crate::LeaseKey;

/// The keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    config: String,
    subnets: String,
}

impl Keys {
    /// The keys below `prefix`, which is cleaned as flannel cleans it: a trailing slash, doubled
    /// slashes and dots make no difference.
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            config: clean(&format!("{prefix}/config")),
            subnets: clean(&format!("{prefix}/subnets")),
        }
    }

    /// The key of the network configuration.
    pub(super) fn config(&self) -> &str {
        &self.config
    }

    /// The prefix that ranges and watches ask for. It has no trailing slash, as in flannel, so that
    /// a role that grants exactly this prefix suffices. [`Self::name_of`] drops the other keys it
    /// matches.
    pub(super) fn prefix(&self) -> &str {
        &self.subnets
    }

    /// The key of an entry.
    pub(super) fn entry(&self, name: &str) -> String {
        format!("{}/{name}", self.subnets)
    }

    /// The key a lease is created under.
    pub(super) fn lease(&self, key: LeaseKey) -> String {
        self.entry(&key.to_string())
    }

    /// The name of the entry under a key. `None` for a neighbour such as `subnets-foo/...`.
    pub(super) fn name_of<'a>(&self, key: &'a [u8]) -> Option<Cow<'a, str>> {
        key.strip_prefix(self.subnets.as_bytes())?
            .strip_prefix(b"/")
            .map(String::from_utf8_lossy)
    }
}

/// The prefix of what hosts exchange in a connectivity test.
pub(super) fn meeting(prefix: &str) -> String {
    clean(&format!("{prefix}/connectivity-test"))
}

fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_cleaned() {
        for (prefix, config) in [
            ("/coreos.com/network", "/coreos.com/network/config"),
            ("/coreos.com//network/", "/coreos.com/network/config"),
            ("/a/./b/../c", "/a/c/config"),
            ("flannel", "flannel/config"),
        ] {
            assert_eq!(Keys::new(prefix).config(), config);
        }
    }

    #[test]
    fn names_are_distinguished_from_neighbours() {
        let keys = Keys::new("/n");
        assert_eq!(keys.prefix(), "/n/subnets");
        assert_eq!(
            keys.name_of(b"/n/subnets/10.5.0.0-24").as_deref(),
            Some("10.5.0.0-24")
        );
        assert_eq!(keys.name_of(b"/n/subnets-foo/10.5.0.0-24"), None);
        assert_eq!(keys.name_of(b"/n/subnets"), None);
        assert_eq!(keys.name_of(b"/n/subnets/a/b").as_deref(), Some("a/b"));
    }
}
