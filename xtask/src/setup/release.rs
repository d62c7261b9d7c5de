//! Another release of Debian than that of this machine, from where the machine has its own.

use std::collections::BTreeSet;

use super::apt::KEY;

/// A release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    /// Its code name.
    pub(crate) name: &'a str,
    /// With newer versions of packages of the release after it.
    pub(crate) backports: bool,
}

impl Release<'_> {
    /// Its lines of sources.list, from `URI CODENAME COMPONENT` of this machine's own: the release
    /// and its security updates.
    pub(super) fn lines(&self, targets: &BTreeSet<String>) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for target in targets {
            let mut words = target.split(' ');
            let (Some(uri), Some(codename), Some("main")) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let mut add = |suffix| lines.insert(format!("deb [{KEY}] {uri} {}{suffix} main", self.name));
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

    /// The option by which apt-get prefers the newer versions.
    pub(super) fn target(&self) -> Option<String> {
        self.backports.then(|| format!("--target-release={}-backports", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_where_the_machines_own_is() {
        let targets =
            ["x:/debian bookworm main", "x:/debian bookworm-updates main", "x:/security bookworm-security main"];
        let targets = targets.map(str::to_owned).into();
        let lines = |backports| {
            let release = Release { name: "trixie", backports };
            release.lines(&targets).iter().filter_map(|line| Some(line.split_once("] ")?.1.to_owned())).collect()
        };
        let plain: Vec<String> = lines(false);
        assert_eq!(plain, ["x:/debian trixie main", "x:/security trixie-security main"]);
        assert_eq!(lines(true)[1], "x:/debian trixie-backports main");
        assert_eq!(Release { name: "trixie", backports: false }.target(), None);
    }
}
