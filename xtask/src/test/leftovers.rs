//! Things that a test run must not leave on the machine: labs without an owner, namespaces,
//! devices, pins.

use std::{collections::BTreeSet, fmt, fs, path::Path};

use crate::lab::{self, Condition};

/// Names of things on this machine that a lab or an agent may have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// Looks at the machine as it is now. Labs in use and labs kept on purpose do not count.
    pub(super) fn find() -> Self {
        let labs = lab::all()
            .into_iter()
            .filter(|lab| lab.condition() == Condition::Dead);
        let mut found: BTreeSet<String> = labs
            .map(|lab| format!("lab {}", lab.dir().display()))
            .collect();
        found.extend(names("/run/netns").map(|name| format!("network namespace {name}")));
        found.extend(
            names("/sys/fs/bpf/flannel").map(|name| format!("pin /sys/fs/bpf/flannel/{name}")),
        );
        let links = names("/sys/class/net").filter(|name| name.starts_with("flannel"));
        found.extend(links.map(|name| format!("device {name}")));
        Self(found)
    }

    /// Returns those that are not in `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(self.0.difference(&before.0).cloned().collect())
    }

    /// Returns true if the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Prints one line for each, and what takes labs down.
    pub(super) fn report(&self, when: &str) {
        for item in &self.0 {
            println!("test: {when}: {item}");
        }
        if self.0.iter().any(|item| item.starts_with("lab ")) {
            println!("test: `cargo xtask clean-lab` takes down labs whose owner is gone");
        }
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<&str> = self.0.iter().map(String::as_str).collect();
        f.write_str(&items.join(", "))
    }
}

fn names(dir: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}
