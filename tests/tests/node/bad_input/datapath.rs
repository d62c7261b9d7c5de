//! Conditions that keep the programs out: the kernel then carries the node's packets, and `status`
//! gives the reason.

use std::{env, path::PathBuf};

use anyhow::{Result, ensure};
use flannel_tests::{AgentOptions, TwoNodes, cluster::VXLAN, not_run};

/// A ready node under this configuration, on which the programs are not used for a reason with
/// `words` in it.
fn kernel_because(
    config: &str,
    change: impl Fn(AgentOptions) -> AgentOptions,
    words: &str,
) -> Result<()> {
    let pair = TwoNodes::new("kernel", config)?;
    let a = pair.a.agent(change(pair.options()?))?;
    let b = pair.b.agent(pair.options()?)?;
    for agent in [&a, &b] {
        agent.wait_ready()?;
        agent.wait_peers(1)?;
    }
    pair.a.add_pod("p1")?.ping(pair.b.add_pod("p1")?.ip())?;
    let mode = a.status()?["mode"].clone();
    assert_eq!(
        (&mode["effective"], &mode["wanted"]),
        (&"kernel".into(), &"fast".into()),
        "{mode}"
    );
    assert!(
        mode["reason"].as_str().unwrap_or_default().contains(words),
        "{words} in {mode}"
    );
    Ok(())
}

#[test]
fn a_network_of_too_many_subnets_is_served_by_the_kernel() -> Result<()> {
    let config = r#"{"Network":"10.0.0.0/8","SubnetLen":26,"Backend":{"Type":"vxlan"}}"#;
    kernel_because(
        config,
        |options| options,
        "the IPv4 network has 262144 subnets; the peer map holds 131072 at most",
    )
}

#[test]
fn group_based_policy_is_served_by_the_kernel() -> Result<()> {
    let config = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","GBP":true}}"#;
    kernel_because(
        config,
        |options| options,
        "Backend.GBP is on, and the programs do not write group policy ids",
    )
}

#[test]
fn a_pin_root_that_cannot_be_made_leaves_the_node_to_the_kernel() -> Result<()> {
    let pin_root = |options| AgentOptions {
        pin_root: "/proc/flannel".to_owned(),
        ..options
    };
    kernel_because(
        VXLAN,
        pin_root,
        "cannot prepare the pin directory /proc/flannel: ",
    )
}

#[test]
fn a_node_without_ebpf_says_so_wherever_it_is_asked() -> Result<()> {
    let pair = TwoNodes::new("nobpf", VXLAN)?;
    let agent = pair.a.ready_agent(AgentOptions {
        pin_root: "/proc/flannel".to_owned(),
        ..pair.options()?
    })?;
    let reason = "cannot prepare the pin directory /proc/flannel";
    let status = agent.cli_any(&["status"])?.stdout;
    let line = "guard      outer off (enforce was asked for: no eBPF); inner off (audit was asked \
        for: no eBPF)";
    ensure!(status.lines().any(|found| found == line), "{status}");
    let mode = agent.cli(&["datapath", "show"])?.stdout;
    ensure!(
        mode.starts_with(&format!("kernel (no eBPF: {reason}")),
        "{mode}"
    );
    let mode = agent.cli_json(&["datapath", "show", "-o", "json"])?;
    ensure!(
        mode["mode"] == "kernel" && mode["no_bpf"].as_str().unwrap_or_default().contains(reason),
        "{mode}"
    );
    let guard = agent.cli(&["guard", "show"])?.stdout;
    ensure!(
        guard.starts_with("outer   off (enforce was asked for: no eBPF), 0 packets refused"),
        "{guard}"
    );
    ensure!(guard.contains(&format!("no eBPF: {reason}")), "{guard}");
    let says = format!("the agent on this node runs without eBPF, so nothing is pinned: {reason}");
    for command in [
        &["maps", "dump", "all"][..],
        &["datapath", "set", "encap"],
        &["guard", "set", "off"],
        &["flows", "flush"],
    ] {
        let output = agent.cli_any(command)?;
        ensure!(
            output.code != 0 && output.stderr.contains(&says),
            "{command:?}: {output:?}"
        );
    }
    Ok(())
}

/// `FLANNEL_AGENT_STUB` names an agent that was built without `FLANNEL_BPF_OBJECT`.
#[test]
fn an_agent_without_programs_serves_by_the_kernel_and_says_how_to_build_one() -> Result<()> {
    let Some(stub) = env::var_os("FLANNEL_AGENT_STUB").map(PathBuf::from) else {
        let why = "FLANNEL_AGENT_STUB names no agent built without its BPF object";
        not_run("the message of an agent without programs", why);
        return Ok(());
    };
    let binary = |options| AgentOptions {
        binary: stub.clone(),
        ..options
    };
    kernel_because(
        VXLAN,
        binary,
        "this executable was built without its BPF object",
    )
}
