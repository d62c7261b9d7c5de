//! Requests that the API refuses.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::eventually;
use std::time::Duration;

use super::{Ec2, instance, wait_cloud};

const FAILURE: &str = "cannot keep the routes of the cloud";

#[test]
fn a_missing_permission_is_named_and_the_node_is_not_ready_until_it_is_there() -> Result<()> {
    let Some((pair, ec2)) = instance("cloud-iam")? else {
        return Ok(());
    };
    ec2.permit(&["DescribeRouteTables"])?;
    let agent = pair.a.agent(Ec2::agent(pair.options()?))?;
    let status = wait_cloud(&agent, "refusals", |cloud| {
        cloud["attempts"].as_u64() >= Some(3)
    })?;
    let cloud = &status["cloud"];
    let error = cloud["error"].as_str().context("an error")?;
    let expected = "CreateRoute is not allowed: the IAM policy of this node's role or user needs \
        ec2:CreateRoute";
    ensure!(error.starts_with(expected), "{error}");
    let check = cloud["source_check"].as_str().context("a note")?;
    ensure!(
        check.contains("needs ec2:ModifyNetworkInterfaceAttribute"),
        "{check}"
    );
    ensure!(
        status["ready"] == false && cloud["present"] == false,
        "{status}"
    );
    ensure!(
        pair.a.subnet_env().is_err(),
        "pods would start without a route"
    );
    let text = agent.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains(&format!("tries): {expected}")) && text.contains(", missing"),
        "{text}"
    );
    let log = agent.child().log();
    assert_eq!(log.matches(FAILURE).count(), 1, "{log}");

    ec2.permit(&["DescribeRouteTables", "CreateRoute"])?;
    agent.wait_ready()?;
    wait_cloud(&agent, "no error", |cloud| {
        cloud["error"].is_null() && cloud["present"] == true
    })?;
    // The log holds no credentials of the role, even at its most verbose level.
    eventually(
        "the end of the failures in the log",
        Duration::from_secs(10),
        || {
            ensure!(
                agent
                    .child()
                    .log()
                    .contains("the routes of the cloud can be kept again")
            );
            Ok(())
        },
    )
}

#[test]
fn wrong_keys_are_named_and_no_secret_is_logged() -> Result<()> {
    let Some((pair, ec2)) = instance("cloud-keys")? else {
        return Ok(());
    };
    let [id, secret] = ec2.administrator();
    let wrong = format!("{}x", &secret[1..]);
    let mut options = Ec2::agent(pair.options()?).flag("--v=10");
    options
        .environment
        .push(("AWS_ACCESS_KEY_ID".to_owned(), id.to_owned()));
    options
        .environment
        .push(("AWS_SECRET_ACCESS_KEY".to_owned(), wrong.clone()));
    let agent = pair.a.agent(options)?;
    let status = wait_cloud(&agent, "a refusal", |cloud| !cloud["error"].is_null())?;
    let error = status["cloud"]["error"].as_str().unwrap_or_default();
    ensure!(
        error.contains("the credentials were refused (AuthFailure)"),
        "{error}"
    );
    let log = agent.child().log();
    ensure!(
        log.contains(FAILURE) && !log.contains(&wrong),
        "the log, of {} bytes",
        log.len()
    );
    Ok(())
}
