//! Hosts of other kinds for the end-to-end tests: a network namespace and a mount namespace in
//! which a script of `tests/hosts` made what such a host has.
//!
//! The namespaces end with this program. One setting is the whole machine's, and restored: the
//! namespace whose IPv4 settings a new namespace takes.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::workspace::Workspace;

/// The directory of the scripts.
const PROFILES: &str = "tests/hosts";
/// The namespace whose settings a new one takes: 3 is that of its maker (Linux 5.6,
/// <https://docs.kernel.org/admin-guide/sysctl/net.html>).
const INHERITANCE: &str = "/proc/sys/net/core/devconf_inherit_init_net";
const OF_THE_MAKER: &str = "3";
/// The start of the script: `/run` is another one, but for the records of labs, which `clean-lab`
/// reads. `$1` is a directory for the move, `$2` the profile.
const START: &str = "mkdir -p /run/flannel-lab \"$1\" && mount --bind /run/flannel-lab \"$1\" && \
    mount -t tmpfs -o mode=0755 tmpfs /run && mkdir /run/flannel-lab && mount --move \"$1\" /run/flannel-lab && \
    ip link set lo up && . \"$PROFILES/$2.sh\" && echo ready && exec cat";

/// A host of a profile, for as long as this value lives.
#[derive(Debug)]
pub(super) struct Host {
    holder: Child,
    inheritance: Option<String>,
}

impl Host {
    /// Makes a host.
    ///
    /// # Errors
    /// The profile is unknown, or its script failed: its messages have been shown.
    pub(super) fn new(workspace: &Workspace, profile: &str) -> anyhow::Result<Self> {
        let known = profiles(workspace.root())?;
        ensure!(known.iter().any(|name| name == profile), "no host profile {profile}; there are: {}", known.join(", "));
        // It ends with its standard input, so with this program.
        let mut command = workspace.command("unshare");
        command.args(["--net", "--mount", "--propagation", "private"]);
        command.args(["sh", "-euc", START, "sh"]).arg(workspace.logs()?.join("host")).arg(profile);
        command.env("PROFILES", workspace.root().join(PROFILES)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().context("cannot start unshare")?;
        let output = holder.stdout.take().context("standard output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("cannot read the script's output")?;
        // The value ends it from now on.
        let host = Self { holder, inheritance: None };
        ensure!(line == "ready\n", "the script of the host profile {profile} failed; its messages are above");
        host.inheriting()
    }

    /// The command that enters the host.
    pub(super) fn wrapper(&self) -> Vec<OsString> {
        ["nsenter", "-t", &self.holder.id().to_string(), "--net", "--mount", "--"].map(OsString::from).to_vec()
    }

    /// Lets new namespaces take its settings. Kernels before 5.6 do not know how.
    fn inheriting(mut self) -> anyhow::Result<Self> {
        let old = fs::read_to_string(INHERITANCE).with_context(|| format!("cannot read {INHERITANCE}"))?;
        if old.trim() != OF_THE_MAKER && fs::write(INHERITANCE, OF_THE_MAKER).is_ok() {
            self.inheritance = Some(old);
        }
        Ok(self)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(old) = &self.inheritance
            && let Err(error) = fs::write(INHERITANCE, old)
        {
            eprintln!("xtask: {INHERITANCE} is not {} again: {error}", old.trim());
        }
        // One that has ended is as good.
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// The names of the profiles.
fn profiles(root: &Path) -> anyhow::Result<Vec<String>> {
    let dir = root.join(PROFILES);
    let entries = dir.read_dir().with_context(|| format!("cannot read {}", dir.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let scripts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "sh"));
    let mut names: Vec<_> = scripts.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_described_and_a_script() {
        let workspace = Workspace::new().expect("the project");
        let page = fs::read_to_string(workspace.root().join(PROFILES).join("README.md")).expect("the page");
        let names = profiles(workspace.root()).expect("scripts");
        assert!(names.len() >= 8, "{names:?}");
        for name in &names {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
            let script = workspace.root().join(PROFILES).join(format!("{name}.sh"));
            let status = std::process::Command::new("sh").arg("-n").arg(&script).status().expect("sh starts");
            assert!(status.success(), "{name}");
        }
    }

    #[test]
    fn an_unknown_profile_is_refused_with_the_known_ones() {
        let workspace = Workspace::new().expect("the project");
        let error = Host::new(&workspace, "windows").expect_err("unknown").to_string();
        assert!(error.contains("windows") && error.contains("docker, "), "{error}");
    }
}
