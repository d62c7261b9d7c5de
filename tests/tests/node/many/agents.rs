//! Several agents on one machine.

use anyhow::{Context as _, Result};
use flannel_tests::{AgentOptions, TwoNodes, cluster::VXLAN, eventually};
use std::time::Duration;

#[test]
fn a_second_agent_with_the_same_state_directory_is_refused() -> Result<()> {
    let pair = TwoNodes::new("second", VXLAN)?;
    let first = pair.a.ready_agent(pair.options()?)?;
    let (code, text) = pair.a.agent(pair.options()?)?.wait_end()?;
    assert_eq!(code, 1, "{text}");
    let message = format!(
        "error: the state directory /run/flannel is in use by process {} (flannel-agent); stop it \
         first, or choose \
         another --state-dir",
        first.child().pid()
    );
    assert!(text.contains(&message), "{text}");
    assert_eq!(first.status()?["ready"], true, "the first goes on");
    Ok(())
}

/// The lock belongs to the process: a crash needs no cleanup.
#[test]
fn a_killed_agent_leaves_its_state_directory_to_the_next() -> Result<()> {
    let pair = TwoNodes::new("next", VXLAN)?;
    let first = pair.a.ready_agent(pair.options()?)?;
    first.kill9()?;
    pair.a.agent(pair.options()?)?.wait_ready()
}

/// The agents use the same device, paths and names: network and mount namespaces keep them apart.
#[test]
fn agents_in_different_namespaces_do_not_meet() -> Result<()> {
    let pair = TwoNodes::new("worlds", VXLAN)?;
    let [a, b] = pair.agents()?;
    for agent in [&a, &b] {
        assert_eq!(agent.status()?["device"]["name"], "flannel.1");
        assert!(
            agent
                .node()
                .outside_path("/run/flannel/agent.sock")
                .exists()
        );
        assert!(
            agent
                .node()
                .outside_path("/sys/fs/bpf/flannel/v2/maps/PEERS")
                .exists()
        );
    }
    a.set_mode("kernel")?;
    assert_eq!(
        b.status()?["mode"]["effective"],
        "fast",
        "the mode of one is not that of the other"
    );
    a.sigterm_and_wait()?;
    assert_eq!(b.status()?["ready"], true);
    Ok(())
}

#[test]
fn state_directory_pin_root_and_subnet_file_follow_their_options() -> Result<()> {
    let pair = TwoNodes::new("elsewhere", VXLAN)?;
    // It mounts the bpf filesystem itself.
    let options = AgentOptions {
        confinement: None,
        state_dir: "/run/other/state".to_owned(),
        pin_root: "/run/other/bpf".to_owned(),
        ..pair
            .options()?
            .flag("--subnet-file=/run/other/cni/subnet.env")
    };
    let agent = pair.a.agent(options)?;
    eventually("readiness", Duration::from_secs(20), || {
        let status = agent.status()?;
        (status["ready"] == true)
            .then_some(())
            .with_context(|| status.to_string())
    })?;
    for there in [
        "state/agent.sock",
        "state/agent.lock",
        "bpf/v2/maps/PEERS",
        "cni/subnet.env",
    ] {
        assert!(
            pair.a.outside_path(format!("/run/other/{there}")).exists(),
            "{there}"
        );
    }
    for default in ["/run/flannel", "/sys/fs/bpf/flannel"] {
        assert!(!pair.a.outside_path(default).exists(), "{default}");
    }
    assert_eq!(agent.status()?["mode"]["effective"], "fast");
    assert_eq!(
        agent.cli_json(&["maps", "dump", "config", "-o", "json"])?["config"]["heartbeat_fresh"],
        true
    );
    Ok(())
}
