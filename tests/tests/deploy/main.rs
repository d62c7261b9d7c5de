//! The files in `deploy/` fit the programs they start, the kernel they prepare, and the
//! requirements of Kubernetes and Helm.

mod chart;
mod chart_sets;
mod docker_opts;
mod documents;
mod helm;
mod policy;
mod privileges;
mod refusals;
mod schemas;
mod seccomp;

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};

use self::documents::Documents;

fn deploy(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn manifest() -> Result<Documents> {
    Documents::parse(&fs::read_to_string(deploy("kube-flannel.yml"))?)
}

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// With `--version` the agent ends at once, but not before it has judged every other flag.
fn agent_takes(flags: &[String]) -> Result<()> {
    let agent = env::var_os("FLANNEL_AGENT").context("FLANNEL_AGENT names the agent")?;
    let output = Command::new(agent).arg("run").args(flags).arg("--version").output()?;
    ensure!(output.status.success(), "{flags:?}: {}", text_of(&output));
    Ok(())
}

#[test]
fn the_agent_knows_every_flag_of_the_manifest() -> Result<()> {
    let flags = manifest()?.flags()?;
    ensure!(flags.len() >= 3, "the flags of the manifest: {flags:?}");
    agent_takes(&flags)
}

/// In namespaces of its own, whose bpf filesystem is not mounted yet.
fn prepare(args: &[&str]) -> Result<String> {
    let programs = tempfile::tempdir()?;
    let agent = env::var_os("FLANNEL_AGENT").context("FLANNEL_AGENT names the agent")?;
    symlink(fs::canonicalize(agent)?, programs.path().join("flannel-agent"))?;
    fs::copy(deploy("docker/prepare-node"), programs.path().join("prepare-node"))?;
    let check = "umount -l /sys/fs/bpf 2>/dev/null; mkdir -p /run/flannel && mount -t tmpfs -o mode=755 tmpfs /run/flannel && \
                 \"$0\" \"$@\" >/dev/null && \"$0\" \"$@\" >/dev/null && \
                 awk '$2 == \"/sys/fs/bpf\" { print $3 }' /proc/mounts && cd /proc/sys/net/netfilter && \
                 cat nf_conntrack_tcp_be_liberal nf_conntrack_tcp_ignore_invalid_rst && \
                 cat nf_conntrack_tcp_timeout_unacknowledged nf_conntrack_tcp_timeout_max_retrans && \
                 { grep -h ^sysctl /run/flannel/sysctls || true; }";
    let output = Command::new("unshare")
        .args(["--mount", "--net", "sh", "-c", check])
        .arg(programs.path().join("prepare-node"))
        .args(args)
        .output()?;
    ensure!(output.status.success(), "{}", text_of(&output));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn a_node_is_prepared_and_its_values_before_are_recorded() -> Result<()> {
    let recorded = "sysctl net.netfilter.nf_conntrack_tcp_be_liberal 0 1\n\
                    sysctl net.netfilter.nf_conntrack_tcp_ignore_invalid_rst 0 1\n\
                    sysctl net.netfilter.nf_conntrack_tcp_timeout_unacknowledged 300 432000\n\
                    sysctl net.netfilter.nf_conntrack_tcp_timeout_max_retrans 300 432000\n";
    assert_eq!(prepare(&[])?, format!("bpf\n1\n1\n432000\n432000\n{recorded}"), "mounted once, and all four set");
    assert_eq!(prepare(&["--conntrack-liberal=false"])?, "bpf\n0\n0\n300\n300\n", "mounted alone");
    Ok(())
}
