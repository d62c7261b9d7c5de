//! The backend ali-vpc, against a double of Alibaba's VPC.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, TwoNodes,
    cluster::{self, topology::Stack},
};
use serde_json::json;

use super::{
    ali_double::{ACTIONS, AliVpc, OTHER, OWN, REGION, TABLE, USER},
    cleanup, expect_no_record, expect_stock_form, put_stock_lease, row, subnet,
    succeed_and_change_nothing, wait_cloud, wait_rows,
};

fn instance(name: &str, keys: &str) -> Result<(TwoNodes, AliVpc)> {
    let backend = format!(r#"{{"Type":"ali-vpc"{keys}}}"#);
    let pair = TwoNodes::with(name, Stack::V4, &cluster::config(Stack::V4, &backend))?;
    let vpc = AliVpc::start(&pair.a)?;
    Ok((pair, vpc))
}

/// Waits until the table has these routes and no others.
fn wait_routes(vpc: &AliVpc, expected: &[[String; 3]]) -> Result<()> {
    wait_rows(|| Ok(vpc.routes()), expected)
}

/// The double, which refuses what the real cloud refuses, refused no request.
fn expect_no_refusals(vpc: &AliVpc) {
    assert_eq!(
        vpc.take_refusals(),
        Vec::<String>::new(),
        "Alibaba would refuse"
    );
}

/// The routes were made and cleared away, by the agent's status.
fn expect_status(agent: &Agent) -> Result<()> {
    let changes = json!({ "created": 1, "replaced": 0, "deleted": 1 });
    let status = wait_cloud(agent, "a status", |cloud| {
        cloud["changes"] == changes && cloud["error"].is_null()
    })?;
    let cloud = &status["cloud"];
    assert_eq!(
        (&cloud["cloud"], &cloud["tables"], &cloud["target"]),
        (&json!("ali"), &json!([TABLE]), &json!(OWN))
    );
    assert_eq!(status["mode"]["effective"], "fast", "{status}");
    Ok(())
}

/// The route is removed, led elsewhere, and back each time; with keys that ended early in between.
fn repair_each_change(
    vpc: &AliVpc,
    agent: &Agent,
    subnet: &str,
    complete: &[[String; 3]],
) -> Result<()> {
    vpc.remove(subnet);
    wait_routes(vpc, complete)?;
    // The agent looks once more, to see that the route is available.
    wait_cloud(agent, "a repair", |cloud| cloud["changes"]["created"] == 2)?;
    vpc.rotate_role();
    vpc.put(subnet, OTHER);
    wait_routes(vpc, complete)?;
    let changes = json!({ "created": 2, "replaced": 1, "deleted": 1 });
    wait_cloud(agent, "repairs", |cloud| {
        cloud["changes"] == changes && cloud["present"] == true
    })?;
    let refusals = vpc.take_refusals();
    ensure!(
        refusals
            .iter()
            .all(|refusal| refusal.contains("InvalidAccessKeyId"))
            && refusals.len() == 1,
        "{refusals:?}"
    );
    Ok(())
}

#[test]
fn a_node_keeps_its_route_in_the_table_of_its_vswitch() -> Result<()> {
    let (pair, vpc) = instance("ali-route", "")?;
    put_stock_lease(&pair)?;
    // Of another node without a lease; inside a lease; and outside the pod network, where stock
    // flannel would delete it.
    let left = [
        row("10.244.11.0/24", OTHER, "Available"),
        row("10.244.13.0/24", OWN, "Available"),
        row("10.99.10.0/24", OWN, "Available"),
    ];
    for [destination, instance, _] in &left {
        vpc.put(destination, instance);
    }
    vpc.put("10.244.10.0/24", OWN);

    let agent = pair.a.ready_agent(AliVpc::agent(pair.options()?))?;
    let subnet = subnet(&agent)?;
    let complete = [&left[..], &[row(&subnet, OWN, "Available")]].concat();
    wait_routes(&vpc, &complete)?;
    expect_status(&agent)?;
    expect_stock_form(&pair, &subnet)?;
    expect_no_refusals(&vpc);

    repair_each_change(&vpc, &agent, &subnet, &complete)?;
    succeed_and_change_nothing(&agent, 3)?;

    agent.sigterm_and_wait()?;
    let done = cleanup(&agent, &AliVpc::environment())?;
    ensure!(
        done.contains(&format!(
            "remove the route {subnet} to {OWN} from the route table {TABLE} in {REGION}"
        )),
        "{done}"
    );
    wait_routes(&vpc, &left)?;
    expect_no_record(&pair)?;
    expect_no_refusals(&vpc);
    Ok(())
}

#[test]
fn a_missing_permission_is_named_and_the_keys_of_the_configuration_are_not_logged() -> Result<()> {
    let [id, secret] = USER;
    let (pair, vpc) = instance(
        "ali-ram",
        &format!(r#","AccessKeyID":"{id}","AccessKeySecret":"{secret}""#),
    )?;
    vpc.permit(&ACTIONS[..2]);
    let agent = pair
        .a
        .agent(AliVpc::agent(pair.options()?).flag("--v=10"))?;
    let status = wait_cloud(&agent, "refusals", |cloud| {
        cloud["attempts"].as_u64() >= Some(2)
    })?;
    let error = status["cloud"]["error"].as_str().context("an error")?;
    let expected = "CreateRouteEntry is not allowed: the RAM policy of this node's role or user \
        needs vpc:CreateRouteEntry";
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
            .all(|refusal| refusal.contains("Forbidden.RAM")),
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
