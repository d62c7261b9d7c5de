//! The init container that prepares a node, with the command of the manifest: a bpf filesystem of
//! the agent's own in the mount namespace of the host, and the sysctls of conntrack.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{AgentOptions, Node, TwoNodes, agent_binary, cluster::VXLAN};

use super::{documents::Documents, manifest, text_of};

/// The place of the pins in the manifest.
const PIN_ROOT: &str = "/run/flannel/bpf";

/// A script that stands for the host, with its own mounts and network and without a bpf filesystem.
/// It runs the container twice, each time with separate mounts, and prints the host's bpf
/// filesystems, the sysctls and the record of them.
const HOST: &str = r#"
    umount -l /sys/fs/bpf 2>/dev/null
    mkdir -p /run/flannel && mount -t tmpfs -o mode=755 tmpfs /run/flannel || exit 1
    in_container() { unshare --mount --propagation private "$@" >&2; }
    in_container "$@" --mount-namespace=/proc/$$/ns/mnt && in_container "$@" --mount-namespace=/proc/$$/ns/mnt || exit 1
    awk '$3 == "bpf" { print $2 }' /proc/mounts
    cd /proc/sys/net/netfilter
    cat nf_conntrack_tcp_timeout_unacknowledged nf_conntrack_tcp_timeout_max_retrans
    grep -h ^sysctl /run/flannel/sysctls || true
"#;

/// The arguments and the environment of the init container. The host's /proc is elsewhere here.
fn init_container(documents: &Documents) -> Result<(Vec<String>, String)> {
    let container = documents.pod("/initContainers/2")?;
    ensure!(
        container["name"] == "prepare-node" && container["securityContext"]["privileged"] == true,
        "{container}"
    );
    let mut args: Vec<String> = serde_json::from_value(container["args"].clone())?;
    args.retain(|arg| arg != "--mount-namespace=/host/proc/1/ns/mnt");
    let pin_root = container
        .pointer("/env/0/value")
        .and_then(|value| value.as_str())
        .context("a variable")?;
    Ok((args, pin_root.to_owned()))
}

fn prepare(more: &[&str]) -> Result<String> {
    let (args, pin_root) = init_container(&manifest()?)?;
    assert_eq!(
        (args.as_slice(), pin_root.as_str()),
        (["prepare".to_owned()].as_slice(), PIN_ROOT)
    );
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--propagation",
            "private",
            "sh",
            "-c",
            HOST,
            "host",
        ])
        .arg(agent_binary()?)
        .args(args)
        .args(more)
        .env("FLANNELD_BPF_PIN_ROOT", pin_root)
        .output()?;
    ensure!(output.status.success(), "{}", text_of(&output));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn a_node_is_prepared_and_its_values_before_are_recorded() -> Result<()> {
    let recorded = "sysctl net.netfilter.nf_conntrack_tcp_timeout_unacknowledged 300 432000\n\
                    sysctl net.netfilter.nf_conntrack_tcp_timeout_max_retrans 300 432000\n\
                    sysctl net.netfilter.nf_conntrack_udp_timeout 30 33\n\
                    sysctl net.netfilter.nf_conntrack_udp_timeout_stream 120 123\n";
    let (mounted, forwards) = (format!("{PIN_ROOT}\n"), "sysctl net.ipv4.ip_forward 0 1\n");
    let all = format!("{mounted}432000\n432000\n{forwards}{recorded}");
    assert_eq!(prepare(&[])?, all, "mounted once, and all three set");
    let untouched = format!("{mounted}300\n300\n");
    assert_eq!(
        prepare(&["--conntrack-liberal=false"])?,
        format!("{untouched}{forwards}"),
        "only forwarding"
    );
    let none = ["--conntrack-liberal=false", "--set-forwarding=false"];
    assert_eq!(prepare(&none)?, untouched, "only mounted");
    let both = ["--conntrack-liberal=false", "--set-forwarding=true"];
    let v6 = "sysctl net.ipv6.conf.all.forwarding 0 1\n";
    assert_eq!(
        prepare(&both)?,
        format!("{untouched}{forwards}{v6}"),
        "both families"
    );
    Ok(())
}

/// The pod must start on a node that cannot be prepared.
#[test]
fn what_cannot_be_prepared_is_a_warning() -> Result<()> {
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private"])
        .arg(agent_binary()?)
        .args([
            "prepare",
            "--mount-namespace=/absent/ns/mnt",
            "--state-dir=/proc/absent",
            "--bpf-pin-root=/absent",
        ])
        .output()?;
    let text = text_of(&output);
    ensure!(output.status.success(), "{text}");
    for warning in [
        "warning: the kernel path serves this node: cannot enter the mount namespace \
         /absent/ns/mnt: ",
        "warning: no sysctl is set: cannot use the state directory /proc/absent: ",
    ] {
        ensure!(text.contains(warning), "{warning} in {text}");
    }
    Ok(())
}

fn shell(node: &Node, script: &str) -> Result<String> {
    Ok(node.run(["sh", "-c", script])?.stdout)
}

/// The places of the node's bpf filesystems.
fn bpf_filesystems(node: &Node) -> Result<Vec<String>> {
    let text = shell(node, "awk '$3 == \"bpf\" { print $2 }' /proc/mounts")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// With what the container has: no bpf filesystem but its own, and the capabilities, profile and
/// read-only root of the manifest. The clean-up runs in a container too, which has the host's run
/// directory elsewhere.
#[test]
fn an_agent_of_a_pod_has_a_bpf_filesystem_of_its_own() -> Result<()> {
    let nodes = TwoNodes::new("ownbpf", VXLAN)?;
    let options = AgentOptions {
        pin_root: PIN_ROOT.to_owned(),
        ..nodes.options()?
    };
    let agent = agent_binary()?.display().to_string();
    shell(
        &nodes.a,
        &format!("umount -l /sys/fs/bpf && {agent} prepare --bpf-pin-root={PIN_ROOT}"),
    )?;
    assert_eq!(bpf_filesystems(&nodes.a)?, [PIN_ROOT]);
    let a = nodes.a.ready_agent(options)?;
    let b = nodes.b.ready_agent(nodes.options()?)?;
    a.wait_peers(1)?;
    b.wait_peers(1)?;
    nodes.a.add_pod("p1")?.ping(nodes.b.add_pod("p1")?.ip())?;
    let mode = a.status()?["mode"].clone();
    ensure!(
        mode["effective"] == "fast" && mode["reason"].is_null(),
        "{mode}"
    );
    a.sigterm_and_wait()?;
    let cleanup = |more: &str| {
        let mounts = "mount --rbind /run/flannel /mnt && umount -l /run/flannel/bpf";
        let command =
            format!("{mounts} && {agent} cleanup --state-dir=/mnt --bpf-pin-root=/mnt/bpf {more}");
        shell(
            &nodes.a,
            &format!("unshare --mount --propagation private sh -c '{command}'"),
        )
    };
    let plan = cleanup("--dry-run")?;
    ensure!(
        plan.contains("would unmount the bpf filesystem on /mnt/bpf\n"),
        "{plan}"
    );
    assert_eq!(bpf_filesystems(&nodes.a)?, [PIN_ROOT]);
    let done = cleanup("")?;
    ensure!(
        done.contains("remove /mnt/bpf if it is empty: done\n"),
        "{done}"
    );
    assert_eq!(bpf_filesystems(&nodes.a)?, Vec::<String>::new());
    Ok(())
}
