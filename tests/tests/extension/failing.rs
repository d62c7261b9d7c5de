//! Commands that fail.

use anyhow::{Result, ensure};
use flannel_tests::{
    TwoNodes,
    cluster::{self, LEASES, topology::Stack},
};
use serde_json::json;

use super::{added, runs, script, wait_status};

/// A lease as stock flannel 0.28 writes it for this backend.
fn put_stock(pair: &TwoNodes, number: u8, data: &str) -> Result<()> {
    let value = format!(
        r#"{{"PublicIP":"192.168.1.{number}","PublicIPv6":null,"BackendType":"extension","BackendData":{data}}}"#
    );
    pair.etcd.put(
        &format!("{LEASES}10.244.{number}.0-24"),
        &value,
        Some(86_400),
    )
}

#[test]
fn a_command_that_fails_for_a_peer_is_a_problem_of_that_peer_and_tried_again() -> Result<()> {
    let backend = json!({
        "Type": "extension",
        "SubnetAddCommand": script(
            "read data; echo $data $SUBNET $NETWORK $PUBLIC_IP >> /run/flannel/runs
             test $SUBNET != 10.244.9.0/24 || test -e /run/flannel/repaired || \
             { echo no way to $PUBLIC_IP; exit 3; }"
        ),
    });
    let pair = TwoNodes::with(
        "ext-fail",
        Stack::V4,
        &cluster::config(Stack::V4, &backend.to_string()),
    )?;
    put_stock(&pair, 8, r#""of eight""#)?;
    put_stock(&pair, 9, r#""of nine""#)?;
    put_stock(&pair, 7, r#"{"not":"a text"}"#)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let status = wait_status(&agent, "a failure", |status| {
        status["failing"] == 1 && status["added"] == 1
    })?;
    let failure = &status["extension"]["failures"][0];
    assert_eq!(failure["peer"], "10.244.9.0-24", "{failure}");
    let error = failure["error"].as_str().unwrap_or_default();
    ensure!(
        error.contains("SubnetAddCommand failed (exit status: 3)"),
        "{error}"
    );
    ensure!(error.ends_with("no way to 192.168.1.9"), "{error}");
    // Only the lease whose data is not a string is refused.
    ensure!(
        status["rejected"][0]["key"] == "10.244.7.0-24",
        "{}",
        status["rejected"]
    );
    assert_eq!(status["rejected_total"], 1);
    let text = agent.cli_any(&["status"])?.stdout;
    ensure!(text.contains("commands for peer 10.244.9.0-24 ("), "{text}");
    ensure!(text.contains("done for 1 peer, 1 failing"), "{text}");

    pair.a.sh("touch /run/flannel/repaired")?;
    added(&agent, 2)?;
    let runs = runs(&pair.a)?;
    ensure!(
        runs.contains(&"of eight 10.244.8.0/24 10.244.0.0/16 192.168.1.8".to_owned()),
        "{runs:?}"
    );
    ensure!(
        runs.iter().filter(|run| run.starts_with("of nine")).count() >= 2,
        "{runs:?}"
    );
    Ok(())
}

#[test]
fn a_start_ends_with_the_command_that_failed() -> Result<()> {
    for (key, command) in [
        ("PreStartupCommand", "echo broken; exit 4"),
        ("PostStartupCommand", "echo broken; exit 4"),
    ] {
        let backend = json!({ "Type": "extension", key: script(command) });
        let pair = TwoNodes::with(
            "ext-start",
            Stack::V4,
            &cluster::config(Stack::V4, &backend.to_string()),
        )?;
        let (code, text) = pair.a.agent(pair.options()?)?.wait_end()?;
        assert_eq!(code, 1, "{text}");
        let expected = format!("{key} failed (exit status: 4): sh -ec {command}: broken");
        ensure!(text.contains(&expected), "{expected} in:\n{text}");
    }
    Ok(())
}
