//! The seccomp profile, compared with the unit's filter of system calls, and the patch that
//! installs it on a node.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{confined::Profile, not_run};

use super::{deploy, text_of};

/// The names of a set of systemd's (`@system-service`), sets within it included; none where systemd
/// cannot be asked.
fn set_of_systemd(set: &str) -> Result<Option<BTreeSet<String>>> {
    let Ok(output) = Command::new("systemd-analyze")
        .args(["syscall-filter", set])
        .output()
    else {
        return Ok(None);
    };
    ensure!(output.status.success(), "{}", text_of(&output));
    let mut names = BTreeSet::new();
    for name in String::from_utf8(output.stdout)?
        .lines()
        .skip(1)
        .map(str::trim)
    {
        match name {
            _ if name.is_empty() || name.starts_with('#') => {}
            _ if name.starts_with('@') => names.extend(set_of_systemd(name)?.unwrap_or_default()),
            _ => drop(names.insert(name.to_owned())),
        }
    }
    Ok(Some(names))
}

/// The profile is derived from what agents do; the unit's filter is made of systemd's sets and must
/// not fall behind it.
#[test]
fn the_unit_lets_every_call_of_the_profile_through() -> Result<()> {
    let unit = fs::read_to_string(deploy("systemd/flannel-agent.service"))?;
    let mut allowed = BTreeSet::new();
    for line in unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
    {
        let (refuse, words) = line
            .strip_prefix('~')
            .map_or((false, line), |words| (true, words));
        for word in words.split(' ') {
            let Some(names) = (if word.starts_with('@') {
                set_of_systemd(word)?
            } else {
                Some([word.to_owned()].into())
            }) else {
                not_run(
                    "the unit's filter of system calls beside the profile",
                    "no systemd-analyze (package systemd)",
                );
                return Ok(());
            };
            allowed = if refuse {
                &allowed - &names
            } else {
                &allowed | &names
            };
        }
    }
    let profile = Profile::parse(&fs::read_to_string(deploy("seccomp/flannel-agent.json"))?)?;
    let rules = profile
        .syscalls
        .iter()
        .filter(|rule| !rule.comment.contains("container's runtime"));
    let missing: Vec<_> = rules
        .flat_map(|rule| &rule.names)
        .filter(|name| !allowed.contains(*name))
        .collect();
    ensure!(missing.is_empty(), "{missing:?}");
    Ok(())
}

/// Parts that are merged by name must have the names of the manifest, and the installed profile
/// must be the one in use.
#[test]
fn the_patch_fits_the_manifest() -> Result<()> {
    let (manifest, patch) = (
        fs::read_to_string(deploy("kube-flannel.yml"))?,
        fs::read_to_string(deploy("seccomp/kube-flannel-patch.yml"))?,
    );
    let image = |text: &str| {
        text.lines()
            .find_map(|line| Some(line.trim().strip_prefix("image: ")?.to_owned()))
    };
    ensure!(image(&patch) == image(&manifest), "another image");
    ensure!(
        manifest.contains("\n      - name: kube-flannel\n")
            && patch.contains("\n      - name: kube-flannel\n")
    );
    let used = patch
        .lines()
        .find_map(|line| line.trim().strip_prefix("localhostProfile: "))
        .context("a profile")?;
    ensure!(
        patch.contains(&format!(" /var/lib/kubelet/seccomp/{used}]")),
        "{used} is not what is installed"
    );
    ensure!(
        patch.contains("/opt/share/flannel-agent.json,"),
        "the place of the profile in the image"
    );
    Ok(())
}
