//! The exit status of commands: 2 means that the command could not look, and says nothing about the
//! node.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Result, ensure};
use flannel_tests::{TwoNodes, agent_binary, cluster::VXLAN};

/// Commands of a user without rights, on a node that is well.
const AS_NOBODY: [&str; 21] = [
    "status",
    "check",
    "explain 10.244.1.2 10.244.2.2",
    "maps dump peers",
    "maps dump flows",
    "maps dump --diff",
    "datapath show",
    "datapath set kernel",
    "guard show",
    "guard set off",
    "flows flush",
    "monitor --count 1",
    "top --once",
    "cleanup",
    "prepare",
    "cluster status --kubeconfig=/nope",
    "cluster explain a b --kubeconfig=/nope",
    "cluster top --kubeconfig=/nope",
    "connectivity test --kubeconfig=/nope",
    "connectivity hosts",
    "lease list --etcd-endpoints=http://127.0.0.1:1",
];

/// Lines that no command takes.
const WRONG: [&str; 9] = [
    "statsu",
    "status --nope",
    "maps dump",
    "maps dump nope",
    "explain 10.244.1.2",
    "explain 10.244.1.2 fd00::2",
    "explain 10.244.1.2 10.244.2.2 --proto icmp --dport 80",
    "cluster explain a b --proto icmp --dport 80",
    "datapath set fats",
];

#[test]
fn a_command_without_the_right_to_look_does_not_report_a_fault() -> Result<()> {
    let nodes = TwoNodes::new("exit", VXLAN)?;
    let agent = nodes.a.ready_agent(nodes.options()?)?;
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let binary = directory.path().join("flannel-agent");
    fs::copy(agent_binary()?, &binary)?;
    let binary = binary.display();
    let as_nobody = |line: &str, code: i32| {
        let line = format!("setpriv --reuid=65534 --regid=65534 --clear-groups {binary} {line}");
        nodes.a.command(line.split(' ')).expect_code(code).run()
    };
    for line in AS_NOBODY {
        let said = as_nobody(line, 2)?;
        ensure!(!said.stderr.is_empty() || !said.stdout.is_empty(), "{line} says nothing");
    }
    for line in WRONG {
        let said = as_nobody(line, 64)?.stderr;
        ensure!(said.starts_with("error: "), "{line}: {said}");
    }
    let which = as_nobody("maps dump", 64)?.stderr;
    ensure!(which.contains("peers") && which.contains("flows"), "{which}");
    ensure!(as_nobody("datapath set fats", 64)?.stderr.contains("auto"), "what else there is");
    // None of these commands changed anything.
    agent.wait_ready()?;
    ensure!(agent.status()?["mode"]["source"] == "default", "{}", agent.status()?["mode"]);
    Ok(())
}
