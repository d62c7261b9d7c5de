//! The backend tencent-vpc, against a double of Tencent's VPC.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, TwoNodes,
    cluster::{self, topology::Stack},
};
use serde_json::json;

use super::{
    cleanup, expect_no_record, expect_stock_form, put_stock_lease, row, subnet,
    succeed_and_change_nothing,
    tencent_double::{ACTIONS, MAIN, OTHER, OWN, REGION, TABLE, USER, Vpc},
    wait_cloud, wait_rows,
};

fn instance(name: &str, keys: &str) -> Result<(TwoNodes, Vpc)> {
    let backend = format!(r#"{{"Type":"tencent-vpc"{keys}}}"#);
    let pair = TwoNodes::with(name, Stack::V4, &cluster::config(Stack::V4, &backend))?;
    let vpc = Vpc::start(&pair.a)?;
    Ok((pair, vpc))
}

/// Waits until a table has these routes and no others.
fn wait_routes(vpc: &Vpc, table: &str, expected: &[[String; 3]]) -> Result<()> {
    wait_rows(|| Ok(vpc.routes(table)), expected)
}

/// The double, which refuses what the real cloud refuses, refused no request.
fn expect_no_refusals(vpc: &Vpc) {
    assert_eq!(
        vpc.take_refusals(),
        Vec::<String>::new(),
        "Tencent would refuse"
    );
}

/// The routes were made and cleared away, by the agent's status.
fn expect_status(agent: &Agent) -> Result<()> {
    let changes = json!({ "created": 1, "replaced": 0, "deleted": 2 });
    let status = wait_cloud(agent, "a status", |cloud| {
        cloud["changes"] == changes && cloud["error"].is_null()
    })?;
    let cloud = &status["cloud"];
    assert_eq!(
        (&cloud["cloud"], &cloud["tables"], &cloud["target"]),
        (&json!("tencent"), &json!([TABLE]), &json!(OWN))
    );
    assert_eq!(status["mode"]["effective"], "fast", "{status}");
    assert_eq!(agent.peer_status("192.168.1.13")?["way"], "cloud");
    Ok(())
}

/// The route is removed, led elsewhere, switched off, and back each time; with keys that ended
/// early in between.
fn repair_each_change(
    vpc: &Vpc,
    agent: &Agent,
    subnet: &str,
    complete: &[[String; 3]],
) -> Result<()> {
    vpc.remove(TABLE, subnet);
    wait_routes(vpc, TABLE, complete)?;
    vpc.rotate_role();
    vpc.put(TABLE, subnet, OTHER, true);
    wait_routes(vpc, TABLE, complete)?;
    vpc.put(TABLE, subnet, OWN, false);
    wait_routes(vpc, TABLE, complete)?;
    let changes = json!({ "created": 2, "replaced": 2, "deleted": 2 });
    wait_cloud(agent, "repairs", |cloud| {
        cloud["changes"] == changes && cloud["present"] == true
    })?;
    let refusals = vpc.take_refusals();
    ensure!(
        refusals
            .iter()
            .all(|refusal| refusal.contains("SecretIdNotFound"))
            && refusals.len() == 1,
        "{refusals:?}"
    );
    Ok(())
}

#[test]
fn a_node_keeps_its_route_in_the_table_of_its_subnet() -> Result<()> {
    let (pair, vpc) = instance("tencent-route", "")?;
    put_stock_lease(&pair)?;
    // Of another node without a lease, on or off; inside a lease; and outside the pod network.
    let left = [
        row("10.244.11.0/24", OTHER, "enabled"),
        row("10.244.12.0/24", OTHER, "disabled"),
        row("10.244.13.0/24", OWN, "enabled"),
        row("10.99.10.0/24", OWN, "enabled"),
    ];
    for [destination, gateway, state] in &left {
        vpc.put(TABLE, destination, gateway, state == "enabled");
    }
    vpc.put(TABLE, "10.244.9.0/24", OWN, false);
    vpc.put(TABLE, "10.244.10.0/24", OWN, true);
    vpc.put(MAIN, "10.244.10.0/24", OWN, true);
    let of_main = vpc.routes(MAIN);

    let agent = pair.a.ready_agent(Vpc::agent(pair.options()?))?;
    let subnet = subnet(&agent)?;
    let complete = [&left[..], &[row(&subnet, OWN, "enabled")]].concat();
    wait_routes(&vpc, TABLE, &complete)?;
    expect_status(&agent)?;
    expect_stock_form(&pair, &subnet)?;
    expect_no_refusals(&vpc);

    repair_each_change(&vpc, &agent, &subnet, &complete)?;
    succeed_and_change_nothing(&agent, 1)?;
    wait_routes(&vpc, TABLE, &complete)?;

    agent.sigterm_and_wait()?;
    let done = cleanup(&agent, &Vpc::environment())?;
    ensure!(
        done.contains(&format!(
            "remove the route {subnet} to {OWN} from the route table {TABLE} in {REGION}"
        )),
        "{done}"
    );
    wait_routes(&vpc, TABLE, &left)?;
    wait_routes(&vpc, MAIN, &of_main)?;
    expect_no_record(&pair)?;
    expect_no_refusals(&vpc);
    Ok(())
}

#[test]
fn a_missing_permission_is_named_and_the_keys_of_the_configuration_are_not_logged() -> Result<()> {
    let [id, secret] = USER;
    let (pair, vpc) = instance(
        "tencent-cam",
        &format!(r#","AccessKeyID":"{id}","AccessKeySecret":"{secret}""#),
    )?;
    vpc.permit(&ACTIONS[..1]);
    let agent = pair.a.agent(Vpc::agent(pair.options()?).flag("--v=10"))?;
    let status = wait_cloud(&agent, "refusals", |cloud| {
        cloud["attempts"].as_u64() >= Some(2)
    })?;
    let error = status["cloud"]["error"].as_str().context("an error")?;
    let expected = "CreateRoutes is not allowed: the CAM policy of this node's role or user needs \
        vpc:CreateRoutes";
    ensure!(error.starts_with(expected), "{error}");
    ensure!(
        status["ready"] == false && status["cloud"]["present"] == false,
        "{status}"
    );
    ensure!(
        pair.a.subnet_env().is_err(),
        "pods would start without a route"
    );
    vpc.permit(&ACTIONS);
    agent.wait_ready()?;
    wait_cloud(&agent, "no error", |cloud| {
        cloud["error"].is_null() && cloud["present"] == true
    })?;
    let refusals = vpc.take_refusals();
    ensure!(
        refusals
            .iter()
            .all(|refusal| refusal.contains("UnauthorizedOperation")),
        "{refusals:?}"
    );
    let log = agent.child().log();
    ensure!(
        log.contains(expected) && !log.contains(secret),
        "the log, of {} bytes",
        log.len()
    );
    Ok(())
}

#[test]
fn wrong_keys_of_the_environment_are_named_and_not_logged() -> Result<()> {
    let (pair, vpc) = instance("tencent-keys", "")?;
    let wrong = "wrong-secret-of-the-user";
    let mut options = Vpc::agent(pair.options()?).flag("--v=10");
    options
        .environment
        .push(("ACCESS_KEY_ID".to_owned(), USER[0].to_owned()));
    options
        .environment
        .push(("ACCESS_KEY_SECRET".to_owned(), wrong.to_owned()));
    let agent = pair.a.agent(options)?;
    let status = wait_cloud(&agent, "a refusal", |cloud| !cloud["error"].is_null())?;
    let error = status["cloud"]["error"].as_str().unwrap_or_default();
    ensure!(
        error.contains("the credentials were refused (AuthFailure.SignatureFailure)"),
        "{error}"
    );
    let refusals = vpc.take_refusals();
    ensure!(
        refusals
            .iter()
            .all(|refusal| refusal.contains("SignatureFailure")),
        "{refusals:?}"
    );
    let log = agent.child().log();
    ensure!(
        log.contains("cannot keep the routes") && !log.contains(wrong),
        "the log, of {} bytes",
        log.len()
    );
    Ok(())
}
