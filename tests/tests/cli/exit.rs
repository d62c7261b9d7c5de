//! The exit status of commands: 2 means that the command could not look, and says nothing about the
//! node. Each status that the list of the commands promises is seen.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_cli::{CommandExit, EXIT_STATUSES};
use flannel_tests::{
    Agent, TwoNodes, agent_binary,
    cluster::{LEASES, VXLAN},
    eventually,
};
use nix::sys::signal::Signal;

/// Commands of a user without rights, on a node that is well.
const AS_NOBODY: [&str; 30] = [
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
    "flows list",
    "flows flush",
    "bugtool -o /nope/archive",
    "monitor --count 1",
    "top --once",
    "cleanup",
    "prepare",
    "cluster status --kubeconfig=/nope",
    "cluster explain a b --kubeconfig=/nope",
    "cluster top --kubeconfig=/nope",
    "cluster flows --kubeconfig=/nope",
    "cluster bugtool --kubeconfig=/nope",
    "connectivity test --kubeconfig=/nope",
    "connectivity hosts",
    "lease list --etcd-endpoints=http://127.0.0.1:1",
    "lease show 10.244.1.0/24 --etcd-endpoints=http://127.0.0.1:1",
    "lease release 10.244.1.0/24 --etcd-endpoints=http://127.0.0.1:1",
    "docker-opts -f /nope",
    "install /nope /nope",
    "manual /proc/nope",
];

/// Commands that a process of this program runs, and that other tests end.
const HELPERS: [&str; 4] = [
    "connectivity serve",
    "connectivity probe",
    "connectivity namespace",
    "udp-tunnel",
];

/// Commands that find a problem in [`a_command_that_finds_a_problem_ends_with_1`].
const FOUND: [&str; 6] = [
    "run",
    "status",
    "check",
    "explain",
    "maps dump",
    "lease list",
];

/// Commands that find a problem in other tests: of the subject `kubernetes`, and `cli::hosts`.
const FOUND_ELSEWHERE: [&str; 4] = [
    "cluster status",
    "cluster explain",
    "connectivity test",
    "connectivity hosts",
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
        ensure!(
            !said.stderr.is_empty() || !said.stdout.is_empty(),
            "{line} says nothing"
        );
    }
    for line in WRONG {
        let said = as_nobody(line, 64)?.stderr;
        ensure!(said.starts_with("error: "), "{line}: {said}");
    }
    let which = as_nobody("maps dump", 64)?.stderr;
    ensure!(
        which.contains("peers") && which.contains("flows"),
        "{which}"
    );
    ensure!(
        as_nobody("datapath set fats", 64)?.stderr.contains("auto"),
        "what else there is"
    );
    // None of these commands changed anything.
    agent.wait_ready()?;
    ensure!(
        agent.status()?["mode"]["source"] == "default",
        "{}",
        agent.status()?["mode"]
    );
    Ok(())
}

/// The help and the statuses of each command are those of the list.
#[test]
fn every_command_names_its_statuses_and_ends_with_64_after_wrong_usage() -> Result<()> {
    let nodes = TwoNodes::new("exit-help", VXLAN)?;
    let binary = agent_binary()?;
    for CommandExit { command, .. } in &EXIT_STATUSES {
        let line = |flag: &str| format!("{} {command} {flag}", binary.display());
        let help = nodes
            .a
            .command(line("--help").split(' '))
            .expect_code(0)
            .run()?
            .stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let row = CommandExit::of(command).context("a row")?;
        for (code, meaning) in row.terms() {
            ensure!(
                help.contains(&format!("{code} {meaning}")),
                "{command}: {code} {meaning} in {help}"
            );
        }
        nodes
            .a
            .command(line("--no-such-flag").split(' '))
            .expect_code(64)
            .run()?;
    }
    Ok(())
}

/// Returns the words of the commands for which the list has a meaning.
fn listed(has: impl Fn(&CommandExit) -> bool) -> BTreeSet<&'static str> {
    EXIT_STATUSES
        .iter()
        .filter(|row| has(row))
        .map(|row| row.command)
        .collect()
}

#[test]
fn every_status_of_the_list_is_tested() {
    let row = |line: &str| {
        EXIT_STATUSES
            .iter()
            .map(|row| row.command)
            .find(|known| line.starts_with(known))
    };
    let unknown: BTreeSet<_> = AS_NOBODY
        .iter()
        .filter_map(|line| row(line))
        .chain(HELPERS)
        .collect();
    assert_eq!(unknown, listed(|row| row.no_result.is_some()));
    let found: BTreeSet<_> = FOUND.into_iter().chain(FOUND_ELSEWHERE).collect();
    assert_eq!(found, listed(|row| row.found.is_some()));
}

#[test]
fn a_command_that_finds_a_problem_ends_with_1() -> Result<()> {
    let nodes = TwoNodes::new("exit-found", VXLAN)?;
    let agent = nodes.a.ready_agent(nodes.options()?)?;
    let waiting = nodes
        .b
        .agent(nodes.options()?.flag("--etcd-prefix=/absent"))?;
    let ends_with = |agent: &Agent, words: &str, code: i32| {
        let said = agent.cli_any(&words.split(' ').collect::<Vec<_>>())?;
        ensure!(
            said.code == code,
            "{words} ended with {}: {said:?}",
            said.code
        );
        anyhow::Ok(())
    };
    let endpoint = format!("--etcd-endpoints={}", nodes.endpoint());
    ends_with(&agent, "status", 0)?;
    let peer = r#"{"PublicIP":"192.168.1.12","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:09"}}"#;
    nodes
        .etcd
        .put(&format!("{LEASES}10.244.9.0-24"), peer, None)?;
    eventually("a peer", Duration::from_secs(30), || {
        ensure!(
            agent
                .cli(&["maps", "dump", "--diff"])?
                .stdout
                .contains("about 1 peer")
        );
        Ok(())
    })?;
    ends_with(&agent, &format!("lease list {endpoint}"), 0)?;
    eventually(
        "a status of an agent that waits",
        Duration::from_secs(30),
        || ends_with(&waiting, "status", 1),
    )?;
    nodes
        .etcd
        .put(&format!("{LEASES}nonsense"), "nonsense", None)?;
    ends_with(&agent, &format!("lease list {endpoint}"), 1)?;
    let subnet = agent.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned();
    let own = subnet.replace(".0/24", ".7");
    ends_with(&agent, &format!("explain {own} 10.244.255.2"), 1)?;
    // The state directory has an agent.
    ends_with(&agent, &format!("run {endpoint}"), 1)?;
    agent.child().signal(Signal::SIGSTOP)?;
    nodes.a.sh("ip link set flannel.1 down")?;
    nodes.a.sh("sysctl -qw net.ipv4.ip_forward=0")?;
    ends_with(&agent, "maps dump --diff", 1)?;
    ends_with(&agent, "check", 1)?;
    agent.child().signal(Signal::SIGCONT)?;
    agent.wait_ready()?;
    Ok(())
}
