//! The systemd unit: what it lets the agent write, and that mode `fast` needs no more.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{fast::fast_pair, not_run};

use super::deploy;

const UNIT: &str = "systemd/flannel-agent.service";

fn unit() -> Result<String> {
    fs::read_to_string(deploy(UNIT)).context(UNIT)
}

/// The words of all lines with this key.
fn words<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.flat_map(str::split_ascii_whitespace).collect()
}

#[test]
fn the_agent_may_write_only_its_own_files_and_the_networks_sysctls() -> Result<()> {
    let unit = unit()?;
    ensure!(
        words(&unit, "ProtectSystem") == ["strict"]
            && words(&unit, "ProtectKernelTunables") == ["yes"]
    );
    let writable = words(&unit, "ReadWritePaths");
    ensure!(
        writable == ["/sys/fs/bpf", "/proc/sys/net", "-/run/xtables.lock"],
        "{writable:?}"
    );
    ensure!(words(&unit, "RuntimeDirectory") == ["flannel"]);
    for socket in [
        "-/run/systemd/private",
        "-/run/dbus",
        "-/run/docker.sock",
        "-/run/containerd",
        "-/run/crio",
    ] {
        ensure!(
            words(&unit, "InaccessiblePaths").contains(&socket),
            "{socket}"
        );
    }
    Ok(())
}

#[test]
fn systemd_reads_the_unit_and_finds_it_confined() -> Result<()> {
    let security = ["security", "--offline=true", "--threshold=25"];
    let Ok(output) = Command::new("systemd-analyze")
        .args(security)
        .arg(deploy(UNIT))
        .output()
    else {
        not_run(
            "the unit's exposure",
            "no systemd-analyze (package systemd)",
        );
        return Ok(());
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    if said.contains("unrecognized option") {
        not_run("the unit's exposure", "systemd-analyze is older than 250");
        return Ok(());
    }
    ensure!(output.status.success(), "{said}");
    // The programs are not installed here, and a line that systemd does not understand is ignored
    // by it with a warning.
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(deploy(UNIT))
        .output()?;
    let said = String::from_utf8_lossy(&verified.stderr);
    ensure!(
        !said.contains("Unknown key") && !said.contains("Failed to parse"),
        "{said}"
    );
    not_run(
        "the unit under systemd as process 1",
        "tests have no service manager; the same mounts are made by hand",
    );
    Ok(())
}

/// The mounts that systemd makes of the unit: `/proc/sys` is read-only, and `/proc/sys/net` is a
/// separate writable mount.
#[test]
fn mode_fast_sets_its_sysctls_within_the_units_mounts() -> Result<()> {
    let pair = fast_pair("unit-sysctl", &[])?;
    let (agent, node) = (&pair.sender, pair.sender.node());
    agent.sigterm_and_wait()?;
    for line in [
        "mount --bind /proc/sys /proc/sys",
        "mount --bind /proc/sys/net /proc/sys/net",
        "mount -o remount,ro,bind /proc/sys",
    ] {
        node.sh(line)?;
    }
    let name = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_max_retrans";
    node.sh(&format!("echo 300 >{name}"))?;
    let refused = node.command([
        "sh",
        "-c",
        "cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern",
    ]);
    let refused = refused.any_code().run()?;
    ensure!(
        refused.code != 0 && refused.stderr.contains("Read-only file system"),
        "{refused:?}"
    );
    agent.restart()?;
    agent.wait_ready()?;
    ensure!(node.sh(&format!("cat {name}"))?.stdout.trim() == "432000");
    ensure!(
        agent.status()?["fast"]["tcp_reason"].is_null(),
        "{}",
        agent.status()?["fast"]
    );
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    drop(talk);
    node.sh("umount /proc/sys/net")?;
    node.sh("umount /proc/sys")?;
    Ok(())
}
