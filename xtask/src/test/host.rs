//! Hosts of other kinds for the end-to-end tests: a network namespace and a mount namespace in
//! which a script of `tests/hosts` made the rules, devices and mounts of such a host.
//!
//! The namespaces end with this program. One setting is the whole machine's, and restored: the
//! namespace whose IPv4 settings a new namespace takes.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::workspace::Workspace;

/// The directory of the scripts.
const PROFILES: &str = "tests/hosts";
/// The shell that outlives the host, and restores a sysctl of the machine: the namespace from which
/// a new one inherits its IPv4 settings, where 3 is the namespace that creates it (Linux 5.6,
/// <https://docs.kernel.org/admin-guide/sysctl/net.html>). The host ends with its standard input,
/// so also with a program that was killed. If another host runs already, that one restores the
/// sysctl. The shell has a record like a lab's: otherwise the last lab to end would remove the
/// empty directory of all records, and leave the host with a mount of a directory that is gone.
/// `$1` is the script of the host, and the remaining arguments are those of the script.
const AROUND: &str = "trap '' INT TERM; record=/run/flannel-lab/host-$$; mkdir -p $record; \
    echo owner $$ $(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 20) >$record/pids; \
    inheritance=/proc/sys/net/core/devconf_inherit_init_net; \
    old=$(cat $inheritance); echo 3 2>/dev/null >$inheritance || :; status=0; \
    unshare --net --mount --propagation private sh -euc \"$@\" || status=$?; \
    [ $old = 3 ] || echo $old >$inheritance; \
    rm -r $record; rmdir /run/flannel-lab 2>/dev/null || :; exit $status";
/// The start of the host: `/run` is a new file system, except for the records of labs, which
/// `clean-lab` reads. `$1` is a directory for the move, `$2` the profile.
const START: &str = "mkdir -p /run/flannel-lab \"$1\" && mount --bind /run/flannel-lab \"$1\" && \
    mount -t tmpfs -o mode=0755 tmpfs /run && mkdir /run/flannel-lab && mount --move \"$1\" \
    /run/flannel-lab && \
    ip link set lo up && . \"$PROFILES/$2.sh\" && echo ready $$ && exec cat";

/// A host of a profile, for as long as this value lives.
#[derive(Debug)]
pub(super) struct Host {
    around: Child,
    /// The process that holds its namespaces.
    holder: String,
}

impl Host {
    /// Makes a host.
    ///
    /// # Errors
    /// The profile is unknown, or its script failed: its messages have been shown.
    pub(super) fn new(workspace: &Workspace, profile: &str) -> anyhow::Result<Self> {
        let known = profiles(workspace.root())?;
        ensure!(
            known.iter().any(|name| name == profile),
            "no host profile {profile}; there are: {}",
            known.join(", ")
        );
        let mut command = workspace.command("sh");
        command
            .args(["-c", AROUND, "sh", START, "sh"])
            .arg(workspace.logs()?.join("host"))
            .arg(profile);
        command
            .env("PROFILES", workspace.root().join(PROFILES))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut around = command.spawn().context("cannot start a shell")?;
        let output = around.stdout.take().context("standard output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .context("cannot read the script's output")?;
        let holder = line
            .strip_prefix("ready ")
            .map(|pid| pid.trim_end().to_owned());
        // The value ends it from now on.
        let host = Self {
            around,
            holder: holder.clone().unwrap_or_default(),
        };
        ensure!(
            holder.is_some(),
            "the script of the host profile {profile} failed; its messages are above"
        );
        Ok(host)
    }

    /// The command that enters the host.
    pub(super) fn wrapper(&self) -> Vec<OsString> {
        ["nsenter", "-t", &self.holder, "--net", "--mount", "--"]
            .map(OsString::from)
            .to_vec()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The end of its standard input ends it.
        drop(self.around.stdin.take());
        if let Err(error) = self.around.wait() {
            eprintln!("xtask: cannot wait for the host of a profile: {error}");
        }
    }
}

/// The names of the profiles.
fn profiles(root: &Path) -> anyhow::Result<Vec<String>> {
    let dir = root.join(PROFILES);
    let entries = dir
        .read_dir()
        .with_context(|| format!("cannot read {}", dir.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let scripts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "sh"));
    let mut names: Vec<_> = scripts
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    #[test]
    fn every_profile_is_described_and_a_script() {
        let workspace = Workspace::new().expect("the project");
        let page = fs::read_to_string(workspace.root().join(PROFILES).join("README.md"))
            .expect("the page");
        let names = profiles(workspace.root()).expect("scripts");
        assert!(names.len() >= 8, "{names:?}");
        for name in &names {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
            let script = workspace.root().join(PROFILES).join(format!("{name}.sh"));
            let status = std::process::Command::new("sh")
                .arg("-n")
                .arg(&script)
                .status()
                .expect("sh starts");
            assert!(status.success(), "{name}");
        }
    }

    #[test]
    fn a_host_ends_and_restores_the_machine() {
        const INHERITANCE: &str = "/proc/sys/net/core/devconf_inherit_init_net";
        if !crate::workspace::is_root() {
            println!("NOT RUN: a host of a profile: namespaces need root");
            return;
        }
        let read = || fs::read_to_string(INHERITANCE).expect("a sysctl");
        let before = read();
        let host = Host::new(&Workspace::new().expect("the project"), "systemd").expect("a host");
        let holder = Path::new("/proc").join(&host.holder);
        assert!(holder.exists());
        // A lab that ends removes the directory of the records if it is empty.
        let record = PathBuf::from(format!("/run/flannel-lab/host-{}", host.around.id()));
        assert!(
            fs::read_to_string(record.join("pids"))
                .expect("a record")
                .starts_with("owner ")
        );
        assert!(fs::remove_dir("/run/flannel-lab").is_err());
        drop(host);
        assert!(!record.exists());
        assert!(!holder.exists());
        assert_eq!(read(), before);
    }

    #[test]
    fn an_unknown_profile_is_refused_with_the_known_ones() {
        let workspace = Workspace::new().expect("the project");
        let error = Host::new(&workspace, "windows")
            .expect_err("unknown")
            .to_string();
        assert!(
            error.contains("windows") && error.contains("docker, "),
            "{error}"
        );
    }
}
