//! The backend gce, against a double of Compute Engine.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, TwoNodes,
    cluster::{self, topology::Stack},
};
use serde_json::json;

use super::{
    cleanup, expect_no_record, expect_stock_form,
    gce_double::{Compute, NETWORK, OTHER, OWN, PERMISSIONS},
    put_stock_lease, row, subnet, succeed_and_change_nothing, wait_cloud, wait_rows,
};

const GONE: &str = "projects/pods-17/zones/europe-west4-a/instances/gone";

fn instance(name: &str) -> Result<(TwoNodes, Compute)> {
    let pair = TwoNodes::with(
        name,
        Stack::V4,
        &cluster::config(Stack::V4, r#"{"Type":"gce"}"#),
    )?;
    let compute = Compute::start(&pair.a)?;
    Ok((pair, compute))
}

/// The name of a node's route.
fn name_of(subnet: &str) -> String {
    format!("flannel-{}", subnet.replace(['.', '/'], "-"))
}

/// Waits until the network has these routes and no others.
fn wait_routes(compute: &Compute, expected: &[[String; 3]]) -> Result<()> {
    wait_rows(|| Ok(compute.routes()), expected)
}

/// The double, which refuses what the real cloud refuses, refused no request.
fn expect_no_refusals(compute: &Compute) {
    assert_eq!(
        compute.take_refusals(),
        Vec::<String>::new(),
        "Google would refuse"
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
        (&json!("gce"), &json!([NETWORK]), &json!(OWN))
    );
    assert_eq!(
        (&cloud["source_check"], &status["mode"]["effective"]),
        (&json!(null), &json!("fast")),
        "{status}"
    );
    assert_eq!(agent.peer_status("192.168.1.13")?["way"], "cloud");
    Ok(())
}

/// The route is removed, led elsewhere, and back each time; with a token that ended early in
/// between.
fn repair_each_change(
    compute: &Compute,
    agent: &Agent,
    subnet: &str,
    complete: &[[String; 3]],
) -> Result<()> {
    let name = &name_of(subnet);
    compute.remove(name);
    wait_routes(compute, complete)?;
    compute.expire_token();
    compute.put(name, subnet, OTHER);
    wait_routes(compute, complete)?;
    let changes = json!({ "created": 2, "replaced": 1, "deleted": 2 });
    wait_cloud(agent, "repairs", |cloud| {
        cloud["changes"] == changes && cloud["present"] == true
    })?;
    let refusals = compute.take_refusals();
    ensure!(
        refusals.iter().all(|refusal| refusal.contains("authError")) && refusals.len() == 1,
        "{refusals:?}"
    );
    Ok(())
}

#[test]
fn a_node_keeps_the_route_with_its_name_and_clears_away_what_leads_nowhere() -> Result<()> {
    let (pair, compute) = instance("gce-route")?;
    put_stock_lease(&pair)?;
    // Of another node without a lease, of one with a lease, by hand, and outside the pod network.
    let left = [
        row("flannel-10-244-11-0-24", "10.244.11.0/24", OTHER),
        row("flannel-10-244-13-0-24", "10.244.13.0/24", GONE),
        row("by-hand", "10.244.12.0/24", OWN),
        row("gone-by-hand", "10.244.14.0/24", GONE),
        row("flannel-10-99-10-0-24", "10.99.10.0/24", OWN),
    ];
    for [name, destination, instance] in &left {
        compute.put(name, destination, instance);
    }
    compute.put("flannel-10-244-9-0-24", "10.244.9.0/24", GONE);
    compute.put("flannel-10-244-10-0-24", "10.244.10.0/24", OWN);

    let agent = pair.a.ready_agent(Compute::agent(pair.options()?))?;
    let subnet = subnet(&agent)?;
    let name = name_of(&subnet);
    let complete = [&left[..], &[row(&name, &subnet, OWN)]].concat();
    wait_routes(&compute, &complete)?;
    expect_status(&agent)?;
    expect_stock_form(&pair, &subnet)?;
    expect_no_refusals(&compute);

    repair_each_change(&compute, &agent, &subnet, &complete)?;
    succeed_and_change_nothing(&agent, 3)?;
    wait_routes(&compute, &complete)?;

    agent.sigterm_and_wait()?;
    let done = cleanup(&agent, &Compute::environment())?;
    ensure!(
        done.contains(&format!(
            "remove the route {subnet} to {OWN} from the network {NETWORK} of the project"
        )),
        "{done}"
    );
    wait_routes(&compute, &left)?;
    expect_no_record(&pair)?;
    expect_no_refusals(&compute);
    Ok(())
}

#[test]
fn a_missing_permission_and_an_instance_that_does_not_forward_are_named() -> Result<()> {
    let (pair, compute) = instance("gce-refused")?;
    let without: Vec<&str> = PERMISSIONS
        .into_iter()
        .filter(|name| *name != "compute.routes.create")
        .collect();
    compute.permit(&without);
    compute.forward(false);
    let agent = pair
        .a
        .agent(Compute::agent(pair.options()?).flag("--v=10"))?;
    let status = wait_cloud(&agent, "refusals", |cloud| {
        cloud["attempts"].as_u64() >= Some(2)
    })?;
    let cloud = &status["cloud"];
    let error = cloud["error"].as_str().context("an error")?;
    let expected = "routes.insert is not allowed: the service account of this instance needs \
        compute.routes.create";
    ensure!(error.starts_with(expected), "{error}");
    let check = cloud["source_check"].as_str().context("a note")?;
    ensure!(
        check.starts_with(&format!(
            "the instance {OWN} may not forward packets (canIpForward is false)"
        )),
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
    ensure!(
        text.contains("the check of source and destination may drop packets of pods: the instance"),
        "{text}"
    );

    compute.permit(&PERMISSIONS);
    agent.wait_ready()?;
    let cloud = wait_cloud(&agent, "no error", |cloud| {
        cloud["error"].is_null() && cloud["present"] == true
    })?;
    assert_eq!(cloud["cloud"]["changes"]["created"], 1);
    let log = agent.child().log();
    ensure!(
        log.contains("canIpForward") && !log.contains("ya29."),
        "the log, of {} bytes",
        log.len()
    );
    Ok(())
}
