//! What lies in `deploy/` fits the programs it starts, the kernel it prepares, and what Kubernetes and Helm ask of it.

mod chart;
mod chart_sets;
mod documents;
mod helm;
mod refusals;
mod schemas;
mod seccomp;

use std::{
    env, fs,
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
#[test]
fn a_node_is_prepared() -> Result<()> {
    let check = "umount -l /sys/fs/bpf 2>/dev/null; \"$0\" && \"$0\" && \
                 awk '$2 == \"/sys/fs/bpf\" { print $3 }' /proc/mounts && \
                 cat /proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal /proc/sys/net/netfilter/nf_conntrack_tcp_ignore_invalid_rst";
    let output = Command::new("unshare")
        .args(["--mount", "--net"])
        .args(["sh", "-c", check])
        .arg(deploy("docker/prepare-node"))
        .output()?;
    ensure!(output.status.success(), "{}", text_of(&output));
    ensure!(String::from_utf8(output.stdout)? == "bpf\n1\n1\n", "mounted once, and both switches set");
    Ok(())
}
