//! The confinement of an agent to the rights it has where it is deployed: the capabilities of the
//! manifest, the shipped seccomp profile, a read-only root file system, and no way to gain
//! privileges.
//!
//! Every agent of the lab is confined, unless its test says otherwise. Each of three programs runs
//! the next by `exec`: `confine` of this crate (root and profile), `setpriv` (capabilities), the
//! agent.

mod profile;

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result};

pub use self::profile::{Profile, Rule};

/// The manifest, which says what the agent is granted.
const MANIFEST: &str = include_str!("../../../deploy/kube-flannel.yml");

/// The confinement of a process.
#[derive(Clone, Debug)]
pub struct Confinement {
    program: PathBuf,
    profile: PathBuf,
    capabilities: Vec<String>,
    read_only: bool,
}

impl Confinement {
    /// As the manifest does it.
    pub fn of_the_manifest() -> Result<Self> {
        let profile = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../deploy/seccomp/flannel-agent.json"
        );
        Ok(Self {
            program: program()?,
            profile: profile.into(),
            capabilities: granted(MANIFEST)?,
            read_only: true,
        })
    }

    /// By another profile.
    #[must_use]
    pub fn profile(self, profile: PathBuf) -> Self {
        Self { profile, ..self }
    }

    /// Without one of the capabilities.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.capabilities.retain(|known| known != name);
        self
    }

    /// With one more capability.
    #[must_use]
    pub fn with(mut self, name: &str) -> Self {
        self.capabilities.push(name.to_owned());
        self
    }

    /// With files where they please.
    #[must_use]
    pub fn writable(self) -> Self {
        Self {
            read_only: false,
            ..self
        }
    }

    /// Returns the words to put in front of a command.
    pub fn argv(&self) -> Vec<String> {
        let mut argv = vec![self.program.display().to_string(), "--profile".to_owned()];
        argv.push(self.profile.display().to_string());
        argv.extend(self.read_only.then(|| "--read-only".to_owned()));
        let granted = self.capabilities.join(",+");
        argv.extend(["--", "setpriv", "--inh-caps=-all", "--ambient-caps=-all"].map(str::to_owned));
        argv.extend([format!("--bounding-set=-all,+{granted}"), "--".to_owned()]);
        argv
    }
}

/// Returns the capabilities that the manifest adds to the agent's container, in the spelling of
/// `setpriv`. It adds no others, except those over files (DAC_OVERRIDE).
fn granted(manifest: &str) -> Result<Vec<String>> {
    let mut lists = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("add: [")?.strip_suffix(']'));
    let list = lists.rfind(|list| list.contains("NET_ADMIN"));
    let list = list.context("the manifest grants the agent no CAP_NET_ADMIN")?;
    Ok(list
        .split(',')
        .map(|name| name.trim().to_lowercase())
        .collect())
}

/// Returns the path of `confine`. It lies next to the programs of this crate, and one directory
/// above its tests.
fn program() -> Result<PathBuf> {
    let own = env::current_exe().context("the path of this program")?;
    let beside = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("confine"))
        .find(|path| path.is_file());
    beside.with_context(|| {
        format!(
            "no `confine` near {}: build this crate's programs",
            own.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shipped() -> Profile {
        Profile::parse(include_str!("../../../deploy/seccomp/flannel-agent.json"))
            .expect("the profile")
    }

    #[test]
    fn the_manifest_says_what_is_granted() {
        assert_eq!(
            granted(MANIFEST).expect("a list"),
            ["net_admin", "net_raw", "bpf", "perfmon"]
        );
    }

    #[test]
    fn a_profile_names_each_call_once_and_in_order() {
        let profile = shipped();
        let names: Vec<_> = profile
            .syscalls
            .iter()
            .flat_map(|rule| &rule.names)
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for rule in &profile.syscalls {
            assert!(
                rule.names.is_sorted() && !rule.comment.is_empty(),
                "{rule:?}"
            );
        }
    }

    /// A name that is misspelt lets nothing through, and no runtime says so.
    #[test]
    fn every_name_is_a_system_call_of_an_architecture_we_ship_for() {
        let profile = shipped();
        let known = |name: &str| {
            name.parse::<syscalls::x86_64::Sysno>().is_ok()
                || name.parse::<syscalls::aarch64::Sysno>().is_ok()
        };
        let unknown: Vec<_> = profile
            .syscalls
            .iter()
            .flat_map(|rule| &rule.names)
            .filter(|name| !known(name))
            .collect();
        assert_eq!(unknown, Vec::<&String>::new());
    }
}
