//! An agent is the only owner of its tunnel device, pod network and pins, also for an agent of
//! another container, which shares neither state directory nor pin root with it.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{AgentOptions, TunnelState, TwoNodes, cluster::VXLAN, eventually};

/// The options of an agent with files and pins elsewhere.
fn elsewhere(nodes: &TwoNodes) -> Result<AgentOptions> {
    Ok(AgentOptions {
        state_dir: "/run/second".to_owned(),
        pin_root: "/sys/fs/bpf/second".to_owned(),
        ..nodes
            .options()?
            .flag("--subnet-file=/run/second/subnet.env")
    })
}

#[test]
fn a_second_agent_names_the_first_and_touches_nothing() -> Result<()> {
    let nodes = TwoNodes::new("second", VXLAN)?;
    let [a, _b] = nodes.agents()?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let (before, rules) = (
        TunnelState::of(&nodes.a)?,
        nodes.a.sh("nft -s list ruleset")?.stdout,
    );
    let (code, log) = nodes.a.agent(elsewhere(&nodes)?)?.wait_end()?;
    assert_eq!(code, 1, "{log}");
    let first = format!("process {}", a.child().pid());
    for part in [
        "another agent runs here",
        &first,
        "/run/flannel",
        "/sys/fs/bpf/flannel",
        "flannel.1",
    ] {
        ensure!(log.contains(part), "{part} in {log}");
    }
    assert_eq!(before.changes(&TunnelState::of(&nodes.a)?), "");
    assert_eq!(nodes.a.sh("nft -s list ruleset")?.stdout, rules);
    near.ping(far.ip())?;
    ensure!(a.status()?["ready"] == true);
    Ok(())
}

/// As after an upgrade in which the new process starts before the old one has ended.
#[test]
fn the_next_agent_starts_as_soon_as_the_first_ends_and_its_programs_go() -> Result<()> {
    let nodes = TwoNodes::new("nextagent", VXLAN)?;
    let [a, _b] = nodes.agents()?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let options = elsewhere(&nodes)?;
    let next = nodes.a.agent(options)?;
    next.wait_log(&["Waiting a moment, in case it is about to end"])?;
    a.sigterm_and_wait()?;
    next.wait_ready()?;
    eventually(
        "the programs of the first agent",
        Duration::from_secs(10),
        || {
            let pins = nodes.a.sh("ls /sys/fs/bpf/flannel")?.stdout;
            ensure!(pins.trim().is_empty(), "{pins}");
            Ok(())
        },
    )?;
    next.wait_log(&["removed the programs of an agent that ended"])?;
    near.wait_ping(far.ip())
}

#[test]
fn cleanup_is_refused_while_an_agent_of_another_container_runs() -> Result<()> {
    let nodes = TwoNodes::new("othercont", VXLAN)?;
    let [a, _b] = nodes.agents()?;
    let cleanup = a.argv_on_the_host(&[
        "cleanup",
        "--state-dir=/run/third",
        "--bpf-pin-root=/sys/fs/bpf/third",
    ]);
    // The path by which the socket is found is another directory here.
    let script = format!("mount -t tmpfs tmpfs /run/flannel && {}", cleanup.join(" "));
    let output = nodes
        .a
        .command([
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
        ])
        .any_code()
        .run()?;
    let said = format!("{}{}", output.stdout, output.stderr);
    ensure!(
        said.contains("runs here, and cleanup would remove its network"),
        "{said}"
    );
    Ok(())
}

/// As in a container that has the BPF filesystem of the host, and not its network.
#[test]
fn an_agent_of_another_network_namespace_with_the_same_pin_root_is_refused() -> Result<()> {
    let nodes = TwoNodes::new("samepins", VXLAN)?;
    let first = nodes.a.ready_agent(nodes.options()?)?;
    let pins = || nodes.a.sh("ls -lR /sys/fs/bpf").map(|output| output.stdout);
    let before = pins()?;
    let enter = format!("nsenter --net=/proc/{}/ns/net", nodes.b.pid());
    let options = AgentOptions {
        pin_root: "/sys/fs/bpf/flannel".to_owned(),
        ..elsewhere(&nodes)?
    };
    let options = options.wrapped_by(&enter);

    let (code, log) = nodes.a.agent(options.clone())?.wait_end()?;
    assert_eq!(code, 1, "{log}");
    let process = format!("process {}", first.child().pid());
    for part in [
        "another agent runs here",
        &process,
        "/run/flannel",
        "the pins below /sys/fs/bpf/flannel",
    ] {
        ensure!(log.contains(part), "{part} in {log}");
    }
    let enter = enter.split(' ').map(str::to_owned);
    let cleanup = enter.chain(first.argv_on_the_host(&["cleanup", "--state-dir=/run/third"]));
    let refused = nodes.a.command(cleanup).any_code().run()?;
    ensure!(
        refused.stderr.contains("runs in another network namespace"),
        "{} {}",
        refused.stdout,
        refused.stderr
    );
    assert_eq!(pins()?, before, "the pins of the first agent");
    ensure!(first.status()?["ready"] == true && first.status()?["mode"]["effective"] == "fast");

    // Whatever the first leaves, its lock ends with it.
    first.kill9()?;
    nodes.a.ready_agent(options)?;
    Ok(())
}
