//! The backend ali-vpc, against a double of Alibaba's VPC.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{TwoNodes, cluster, cluster::LEASES, topology::Stack};
use serde_json::json;

use super::{
    ali_double::{ACTIONS, AliVpc, OTHER, OWN, REGION, TABLE, USER},
    cleanup, row, subnet, wait_cloud, wait_rows,
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

#[test]
fn a_node_keeps_its_route_in_the_table_of_its_vswitch() -> Result<()> {
    let (pair, vpc) = instance("ali-route", "")?;
    // A lease as stock flannel 0.19 writes it for this backend.
    pair.etcd.put(
        &format!("{LEASES}10.244.13.0-24"),
        r#"{"PublicIP":"192.168.1.13"}"#,
        Some(86_400),
    )?;
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
    let changes = json!({ "created": 1, "replaced": 0, "deleted": 1 });
    let status = wait_cloud(&agent, "a status", |cloud| {
        cloud["changes"] == changes && cloud["error"].is_null()
    })?;
    let cloud = &status["cloud"];
    assert_eq!(
        (&cloud["cloud"], &cloud["tables"], &cloud["target"]),
        (&json!("ali"), &json!([TABLE]), &json!(OWN))
    );
    assert_eq!(status["mode"]["effective"], "fast", "{status}");
    let key = format!("{LEASES}{}", subnet.replace('/', "-"));
    let published = pair.etcd.get(&key)?.context("a lease")?;
    ensure!(
        !published.contains("BackendType") && !published.contains("BackendData"),
        "{published}"
    );
    assert_eq!(
        vpc.take_refusals(),
        Vec::<String>::new(),
        "Alibaba would refuse"
    );

    // Removed, led elsewhere, and back each time; with keys that ended early in between.
    vpc.remove(&subnet);
    wait_routes(&vpc, &complete)?;
    // The agent looks once more, to see that the route is available.
    wait_cloud(&agent, "a repair", |cloud| cloud["changes"]["created"] == 2)?;
    vpc.rotate_role();
    vpc.put(&subnet, OTHER);
    wait_routes(&vpc, &complete)?;
    let changes = json!({ "created": 2, "replaced": 1, "deleted": 1 });
    wait_cloud(&agent, "repairs", |cloud| {
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

    // The next agent finds it, and changes nothing.
    agent.kill9()?;
    agent.restart()?;
    agent.wait_ready()?;
    let status = wait_cloud(&agent, "a look", |cloud| {
        cloud["requests"]["done"].as_u64() > Some(3)
    })?;
    assert_eq!(
        status["cloud"]["changes"],
        json!({ "created": 0, "replaced": 0, "deleted": 0 })
    );

    agent.sigterm_and_wait()?;
    let done = cleanup(&agent, &AliVpc::environment())?;
    ensure!(
        done.contains(&format!(
            "remove the route {subnet} to {OWN} from the route table {TABLE} in {REGION}"
        )),
        "{done}"
    );
    wait_routes(&vpc, &left)?;
    ensure!(
        !pair
            .a
            .outside_path("/run/flannel/cloud-routes.json")
            .exists(),
        "the record is left"
    );
    assert_eq!(
        vpc.take_refusals(),
        Vec::<String>::new(),
        "Alibaba would refuse"
    );
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
        needs \
                    vpc:CreateRouteEntry";
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
