//! `status`.

use anyhow::Result;
use flannel_tests::{Lab, StockNode, TwoNodes, cluster::VXLAN};
use serde_json::Value;

fn binary() -> Result<String> {
    Ok(flannel_tests::AgentOptions::etcd("http://127.0.0.1:1")?
        .binary
        .display()
        .to_string())
}

#[test]
fn a_living_agent_is_shown_with_lease_store_device_and_peers() -> Result<()> {
    let pair = TwoNodes::new("alive", VXLAN)?;
    let own = StockNode::vxlan(85, "192.168.1.11", "02:00:00:00:00:05");
    pair.etcd.put(&own.key(), &own.value(), None)?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    pair.etcd
        .put("/coreos.com/network/subnets/nonsense", "{}", None)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(1)?;
    let text = agent.cli_any(&["status"])?.stdout;
    let pid = agent.child().pid();
    for line in [
        format!(
            "agent      {} (process {pid}), running\n",
            env!("CARGO_PKG_VERSION")
        ),
        "ready      yes\n".to_owned(),
        "mode       fast (default), attached by tcx\n".to_owned(),
        "lease      10.244.85.0/24 at 192.168.1.11, reserved\n".to_owned(),
        "store      http://192.168.1.12:2379, in sync for ".to_owned(),
        "interface  eth0 192.168.1.11, reached at 192.168.1.11\n".to_owned(),
        "ready      yes\nproblems   1 refused lease\n".to_owned(),
        "peers      1 (1 tunnel)\necho       no requests\n\nrefused lease: ".to_owned(),
        "\n\nSUBNET         PUBLIC-IP     VTEP-MAC           WAY     ECHO  WHY\n".to_owned(),
        "10.244.9.0/24  192.168.1.99  02:00:00:00:00:09  tunnel  -\n".to_owned(),
        "refused lease: lease \"nonsense\": malformed key: ".to_owned(),
    ] {
        assert!(text.contains(&line), "{line:?} in:\n{text}");
    }
    let device = text
        .lines()
        .find(|line| line.starts_with("device     flannel.1 (index "))
        .unwrap_or_default();
    assert!(device.ends_with(", MTU 1450"), "{text}");
    Ok(())
}

/// The dead cannot be asked, but their pins can.
#[test]
fn a_dead_agent_is_shown_as_such_with_what_its_pins_tell() -> Result<()> {
    let pair = TwoNodes::new("dead", VXLAN)?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(1)?;
    let living = agent.status()?;
    agent.kill9()?;
    let status = agent.status()?;
    assert_eq!(
        status["stage"],
        "no agent is running; this is read from its pins"
    );
    assert_eq!(
        (&status["ready"], &status["pid"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(status["mode"]["effective"], "fast", "{status}");
    assert_eq!(status["peers"], living["peers"]);
    let names = |status: &Value| -> Vec<String> {
        status
            .as_object()
            .into_iter()
            .flat_map(|members| members.keys().cloned())
            .collect()
    };
    assert_eq!(
        names(&status),
        names(&living),
        "one document, whoever answers"
    );
    let text = agent.cli_any(&["status"])?.stdout;
    assert!(
        text.starts_with(
            "agent      no agent is running; this is read from its pins\nready      no\n"
        ),
        "{text}"
    );
    Ok(())
}

#[test]
fn a_node_on_which_no_agent_ever_ran_says_so() -> Result<()> {
    let lab = Lab::new("never")?;
    let node = lab.node("n")?;
    let output = node.command([&binary()?, "status"]).any_code().run()?;
    assert_eq!(output.code, 2, "no agent");
    assert_eq!(
        output.stdout,
        "agent      no agent is running, and nothing is pinned below /sys/fs/bpf/flannel: it never \
         ran here, ran without \
         eBPF, or was cleaned up\nready      no\nmode       kernel (default)\n"
    );
    let output = node
        .command([&binary()?, "status", "-o", "json"])
        .any_code()
        .run()?;
    let status: Value = serde_json::from_str(&output.stdout)?;
    assert_eq!(
        (&status["ready"], &status["pid"]),
        (&false.into(), &Value::Null)
    );
    assert!(
        !node.outside_path("/run/flannel").exists()
            && !node.outside_path("/sys/fs/bpf/flannel").exists()
    );
    Ok(())
}

#[test]
fn an_agent_that_waits_says_for_what() -> Result<()> {
    let pair = TwoNodes::unconfigured("waits")?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_log(&["waiting for the network configuration"])?;
    let waiting = agent.cli_any(&["status"])?;
    assert_eq!(waiting.code, 1, "not ready");
    let text = waiting.stdout;
    assert!(
        text.contains(", waiting for the network configuration\nready      no\n"),
        "{text}"
    );
    assert!(
        text.contains("store      http://192.168.1.12:2379, not followed yet\n"),
        "{text}"
    );
    Ok(())
}

#[test]
fn status_waits_for_an_agent_to_become_ready() -> Result<()> {
    let pair = TwoNodes::unconfigured("waiter")?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_log(&["waiting for the network configuration"])?;
    let early = agent.cli_any(&["status", "--wait=1s"])?;
    assert_eq!(early.code, 1, "{early:?}");
    pair.etcd.put("/coreos.com/network/config", VXLAN, None)?;
    let ready = agent.cli(&["status", "--wait=30s"])?.stdout;
    assert!(ready.contains("\nready      yes\n"), "{ready}");
    Ok(())
}
