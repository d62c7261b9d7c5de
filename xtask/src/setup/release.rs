//! Another release of Debian than that of this machine, from where the machine has its own.

use std::collections::BTreeSet;

use super::apt::{self, KEY};

/// A release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    /// Its code name.
    pub(crate) name: &'a str,
    /// With newer versions of packages of the release after it.
    pub(crate) backports: bool,
    /// The architecture of the packages, as Debian calls it.
    pub(crate) architecture: &'a str,
}

impl Release<'_> {
    /// Its lines of sources.list, from `URI CODENAME COMPONENT` of this machine's own: the release
    /// and its security updates.
    pub(super) fn lines(&self, targets: &BTreeSet<String>) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for target in targets {
            let mut words = target.split(' ');
            let (Some(uri), Some(codename), Some("main")) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let mut add = |suffix| {
                lines.insert(format!(
                    "deb [arch={} {KEY}] {uri} {}{suffix} main",
                    self.architecture, self.name
                ))
            };
            match codename.split_once('-') {
                Some((_, "security")) => add("-security"),
                Some(_) => continue,
                None => add(""),
            };
            if self.backports && !codename.contains('-') {
                add("-backports");
            }
        }
        lines
    }

    /// The options by which apt-get takes packages of the architecture, and prefers the newer
    /// versions.
    pub(super) fn options(&self) -> Vec<String> {
        let mut options = apt::architecture_options(self.architecture).to_vec();
        options.extend(
            self.backports
                .then(|| format!("--target-release={}-backports", self.name)),
        );
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_where_the_machines_own_is() {
        let targets = [
            "x:/debian bookworm main",
            "x:/debian bookworm-updates main",
            "x:/security bookworm-security main",
        ];
        let targets = targets.map(str::to_owned).into();
        let lines = |backports| {
            let release = Release {
                name: "trixie",
                backports,
                architecture: "arm64",
            };
            release
                .lines(&targets)
                .iter()
                .filter_map(|line| Some(line.split_once("] ")?.1.to_owned()))
                .collect()
        };
        let plain: Vec<String> = lines(false);
        assert_eq!(
            plain,
            ["x:/debian trixie main", "x:/security trixie-security main"]
        );
        assert_eq!(lines(true)[1], "x:/debian trixie-backports main");
        let own = Release {
            name: "trixie",
            backports: false,
            architecture: "amd64",
        };
        let options = [
            "--option=APT::Architecture=amd64",
            "--option=APT::Architectures=amd64",
        ];
        assert_eq!(own.options(), options);
        let newer = Release {
            backports: true,
            ..own
        };
        assert_eq!(newer.options()[2], "--target-release=trixie-backports");
    }
}
