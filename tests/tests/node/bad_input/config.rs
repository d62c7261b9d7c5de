//! The network configuration in etcd.

use std::{thread, time::Duration};

use anyhow::Result;
use flannel_tests::{
    TwoNodes,
    cluster::{VXLAN, etcd::CONFIG_KEY},
};

/// The agent's end under this configuration: its output.
fn refused(config: &str) -> Result<String> {
    let pair = TwoNodes::new("refused", config)?;
    let (code, text) = pair.a.agent(pair.options()?)?.wait_end()?;
    assert_eq!(code, 1, "{config}:\n{text}");
    assert!(
        text.contains("error: the network configuration cannot be served: "),
        "{text}"
    );
    assert!(
        !pair.a.outside_path("/run/flannel/subnet.env").exists(),
        "{config}: no subnet without a configuration"
    );
    Ok(text)
}

#[test]
fn a_configuration_that_cannot_be_served_ends_the_agent() -> Result<()> {
    for (config, message) in [
        (
            r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlann"}}"#,
            "Backend.Type \"vxlann\" in the network configuration is unknown; write \"vxlan\"",
        ),
        (
            r#"{"Network":"10.244.0.0/16"}"#,
            "the network configuration has no Backend, which flannel reads as udp; write \
             \"Backend\": {\"Type\": \"vxlan\"}",
        ),
        (
            r#"{"Network":"10.244.0.0/16","Backend":{}}"#,
            "Backend in the network configuration has no Type",
        ),
        (
            r#"{"EnableIPv4":false,"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#,
            "the network configuration enables neither IPv4 nor IPv6",
        ),
    ] {
        let text = refused(config)?;
        assert!(text.contains(message), "{message} in:\n{text}");
    }
    Ok(())
}

/// The kernel says "Invalid argument"; the message names the device, the key and the remedy.
#[test]
fn an_mtu_that_the_interface_cannot_carry_is_named_with_its_key() -> Result<()> {
    let config = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":9000}}"#;
    let pair = TwoNodes::new("large-mtu", config)?;
    let (code, text) = pair.a.agent(pair.options()?)?.wait_end()?;
    assert_eq!(code, 1, "{text}");
    let message = "flannel.1 cannot have an MTU of 8950 bytes, with the tunnel's headers the \
        external interface \
                   carries less: lower Backend.MTU in the network configuration, or raise the MTU \
                   of the interface";
    assert!(text.contains(message), "{text}");
    Ok(())
}

/// The agent waits while the configuration is invalid: it logs each mistake with its value, and
/// becomes ready when the configuration is corrected.
#[test]
fn a_slip_in_the_configuration_is_waited_out_and_named() -> Result<()> {
    let pair = TwoNodes::unconfigured("slip")?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_log(&[
        "etcd has no key /coreos.com/network/config; write the network configuration there",
    ])?;
    for (config, message) in [
        (
            r#"{"Network":"10.244.0.0/16","Backend":"#,
            "the network configuration is not a JSON object: EOF while parsing",
        ),
        (
            r#"{"Backend":{"Type":"vxlan"}}"#,
            "the network configuration has no Network; set it to the pod network, for example \
             \"10.244.0.0/16\"",
        ),
        (
            r#"{"Network":"10.244.0.0","Backend":{"Type":"vxlan"}}"#,
            "Network in the network configuration is \"10.244.0.0\", expected a CIDR",
        ),
        (
            r#"{"Network":"10.244.0.0/16","SubnetLen":17,"Backend":{"Type":"vxlan"}}"#,
            "SubnetLen 17 does not suit the network 10.244.0.0/16: it must lie in 18..=30",
        ),
        (
            r#"{"Network":"10.244.0.0/16","SubnetMin":"10.245.1.0","Backend":{"Type":"vxlan"}}"#,
            "SubnetMin 10.245.1.0 is not in the network 10.244.0.0/16",
        ),
        (
            r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":16777216}}"#,
            "VNI in the network configuration is 16777216, expected a VNI of 24 bits",
        ),
    ] {
        pair.etcd.put(CONFIG_KEY, config, None)?;
        agent.wait_log(&[message])?;
    }
    let status = agent.status()?;
    assert_eq!(
        status["stage"], "waiting for the network configuration",
        "{status}"
    );
    assert_eq!(status["ready"], false, "{status}");
    pair.etcd.put(CONFIG_KEY, VXLAN, None)?;
    agent.wait_ready()
}

/// The store is asked every second or so; the log must not show each time.
#[test]
fn a_lasting_mistake_is_logged_once() -> Result<()> {
    let pair = TwoNodes::new("once", "{")?;
    let agent = pair.a.agent(pair.options()?)?;
    let message = "the network configuration is not a JSON object";
    agent.wait_log(&[message])?;
    thread::sleep(Duration::from_secs(4));
    assert_eq!(agent.log_count(message), 1, "{}", agent.child().log());
    Ok(())
}

#[test]
fn a_configuration_with_an_unknown_key_is_served_with_a_warning() -> Result<()> {
    let pair = TwoNodes::new(
        "odd",
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","DirectRoutes":true}}"#,
    )?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_log(&[
        "Backend in the network configuration has the unknown key \"DirectRoutes\"; it is ignored",
    ])
}
