//! What lies in `deploy/` fits the programs it starts, and the kernel it prepares.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::not_run;

fn deploy(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// With `--version` the agent ends at once, but not before it has judged every other flag.
#[test]
fn the_agent_knows_every_flag_of_the_manifest() -> Result<()> {
    let manifest = fs::read_to_string(deploy("kube-flannel.yml"))?;
    let flags: Vec<_> = manifest.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    let flags: Vec<_> = flags.into_iter().filter(|flag| flag.starts_with("--")).collect();
    ensure!(flags.len() >= 3, "the flags of the manifest: {flags:?}");
    let agent = env::var_os("FLANNEL_AGENT").context("FLANNEL_AGENT names the agent")?;
    let output = Command::new(agent).arg("run").args(&flags).arg("--version").output()?;
    ensure!(output.status.success(), "{flags:?}: {}", text_of(&output));
    Ok(())
}

#[test]
fn the_manifest_is_valid_by_the_schemas_of_kubernetes() -> Result<()> {
    let validator = env::var_os("KUBERNETES_VALIDATE").unwrap_or_else(|| "kubernetes-validate".into());
    let Ok(output) = Command::new(validator).args(["--strict", "--no-warn"]).arg(deploy("kube-flannel.yml")).output()
    else {
        not_run(
            "the manifest by the schemas of Kubernetes",
            "no kubernetes-validate (pip install kubernetes-validate)",
        );
        return Ok(());
    };
    ensure!(output.status.success(), "{}", text_of(&output));
    Ok(())
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
