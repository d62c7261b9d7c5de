//! Options for the Docker daemon: the agent's subcommand and the script write the same and end the
//! same.

use std::fs;

use anyhow::Result;
use flannel_tests::{Lab, Node, agent_binary};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/mk-docker-opts.sh");
const SAMPLE: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.74.1/24\n\
    FLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n";
const EACH: &str = "DOCKER_OPT_BIP=\"--bip=10.1.74.1/24\"\n\
    DOCKER_OPT_IPMASQ=\"--ip-masq=true\"\nDOCKER_OPT_MTU=\"--mtu=1472\"\n";
const ALL: &str = "DOCKER_OPTS=\" --bip=10.1.74.1/24 --ip-masq=true --mtu=1472\"\n";

/// Runs both with the same arguments. Returns true if they did their work, and the file: in both
/// they agree.
fn both(node: &Node, arguments: &str, environment: &[(&str, &str)]) -> Result<(bool, String)> {
    let agent = agent_binary()?.display().to_string();
    let output = node.outside_path("/run/docker_opts.env");
    let mut results = Vec::new();
    for (program, failure) in [
        (format!("{agent} docker-opts"), 2),
        (format!("sh {SCRIPT}"), 1),
    ] {
        fs::write(&output, "what was there\n")?;
        let mut command = node
            .command(format!("{program} {arguments}").split_ascii_whitespace())
            .any_code();
        for (name, value) in environment {
            command = command.env(name, value);
        }
        let ended = command.run()?;
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.is_empty()),
            ("", ended.code == 0),
            "{program}: {ended:?}"
        );
        assert!([0, failure].contains(&ended.code), "{program}: {ended:?}");
        results.push((ended.code == 0, fs::read_to_string(&output)?));
    }
    assert_eq!(results[0], results[1], "{arguments}");
    Ok(results.swap_remove(0))
}

#[test]
fn the_options_choose_what_is_written() -> Result<()> {
    let lab = Lab::new("docker")?;
    let node = lab.node("n")?;
    let path = "/run/flannel/subnet.env";
    fs::create_dir(node.outside_path("/run/flannel"))?;
    fs::write(node.outside_path(path), SAMPLE)?;
    assert_eq!(both(&node, "", &[])?, (true, format!("{EACH}{ALL}")));
    assert_eq!(both(&node, "-i -c", &[])?, (true, format!("{EACH}{ALL}")));
    assert_eq!(both(&node, "-i", &[])?, (true, EACH.to_owned()));
    assert_eq!(both(&node, "-c", &[])?, (true, ALL.to_owned()));
    assert_eq!(
        both(&node, "-cm -k OPTS", &[])?,
        (true, "OPTS=\" --bip=10.1.74.1/24 --mtu=1472\"\n".to_owned())
    );
    let expected = "DOCKER_OPTS=\"--label \\\"a \\$b\\\" --bip=10.1.74.1/24 --mtu=1472\"\n";
    assert_eq!(
        both(&node, "-cm", &[("DOCKER_OPTS", "--label \"a $b\"")])?,
        (true, expected.to_owned())
    );
    // What the environment has is not what the file has.
    fs::write(node.outside_path(path), "FLANNEL_MTU=1400\n")?;
    let expected = "DOCKER_OPTS=\" --mtu=1400\"\n";
    assert_eq!(
        both(&node, "-c", &[("FLANNEL_SUBNET", "10.9.9.1/24")])?,
        (true, expected.to_owned())
    );
    Ok(())
}

#[test]
fn bad_input_and_a_route_of_another_node_are_failures() -> Result<()> {
    let lab = Lab::new("docker2")?;
    let node = lab.node("n")?;
    let untouched = (false, "what was there\n".to_owned());
    assert_eq!(both(&node, "", &[])?, untouched);
    fs::create_dir(node.outside_path("/run/flannel"))?;
    fs::write(
        node.outside_path("/run/flannel/subnet.env"),
        SAMPLE.replace("false", "maybe"),
    )?;
    assert_eq!(both(&node, "", &[])?, untouched);
    assert!(both(&node, "-m -c", &[])?.0);

    fs::write(node.outside_path("/run/flannel/subnet.env"), SAMPLE)?;
    node.sh("ip link add eth0 type veth peer name uplink")?;
    node.sh("ip link set eth0 up")?;
    node.address("eth0", "192.0.2.1/24", None)?;
    node.sh("ip route add 10.1.0.0/16 via 192.0.2.9")?;
    assert_eq!(both(&node, "-c", &[])?, (true, ALL.to_owned()));
    node.sh("ip route add 10.1.74.0/24 via 192.0.2.9")?;
    assert_eq!(both(&node, "-c", &[])?, (false, ALL.to_owned()));
    Ok(())
}
