//! The route of a node in the route tables of a cloud: the backends aws-vpc, gce,
//! tencent-vpc and ali-vpc.
//!
//! Amazon's VPC is an independent implementation of EC2's API; the other clouds are doubles of this
//! suite, which refuse what the public API refuses. They keep tables and carry no packets.

mod ali;
mod ali_double;
mod double;
mod ec2;
mod gce;
mod gce_double;
mod refused;
mod routes;
mod tencent;
mod tencent_double;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ec2::{Ec2, MISSING};
use flannel_tests::{
    Agent, TwoNodes,
    cluster::{self, LEASES, topology::Stack},
    eventually, not_run,
};
use serde_json::{Value, json};

/// Two nodes with etcd, of which `a` is an instance; `None` without EC2, and says so.
fn instance(name: &str) -> Result<Option<(TwoNodes, Ec2)>> {
    let pair = TwoNodes::with(
        name,
        Stack::V4,
        &cluster::config(Stack::V4, r#"{"Type":"aws-vpc"}"#),
    )?;
    let Some(ec2) = Ec2::start(&pair.a)? else {
        not_run("routes of a cloud", MISSING);
        return Ok(None);
    };
    Ok(Some((pair, ec2)))
}

/// The subnet of an agent.
fn subnet(agent: &Agent) -> Result<String> {
    Ok(agent.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned())
}

/// Waits until the routes in the cloud are so, by the agent's status.
fn wait_cloud(agent: &Agent, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(what, Duration::from_mins(1), || {
        let status = agent.status()?;
        ensure!(is_so(&status["cloud"]), "{}", status["cloud"]);
        Ok(status)
    })
}

/// A lease as stock flannel 0.19 writes it for backends of clouds: 10.244.13.0/24 of 192.168.1.13.
fn put_stock_lease(pair: &TwoNodes) -> Result<()> {
    let lease = r#"{"PublicIP":"192.168.1.13"}"#;
    let key = format!("{LEASES}10.244.13.0-24");
    pair.etcd.put(&key, lease, Some(86_400))
}

/// The agent publishes its lease as stock flannel does, without a type and data of a backend.
fn expect_stock_form(pair: &TwoNodes, subnet: &str) -> Result<()> {
    let key = format!("{LEASES}{}", subnet.replace('/', "-"));
    let published = pair.etcd.get(&key)?.context("a lease")?;
    ensure!(
        !published.contains("BackendType") && !published.contains("BackendData"),
        "{published}"
    );
    Ok(())
}

/// An agent that succeeds a killed one finds the route, and changes nothing: by its status, once it
/// has made more than so many requests.
fn succeed_and_change_nothing(agent: &Agent, requests: u64) -> Result<()> {
    agent.kill9()?;
    agent.restart()?;
    agent.wait_ready()?;
    let status = wait_cloud(agent, "a look", |cloud| {
        cloud["requests"]["done"].as_u64() > Some(requests)
    })?;
    assert_eq!(
        status["cloud"]["changes"],
        json!({ "created": 0, "replaced": 0, "deleted": 0 })
    );
    Ok(())
}

/// Of the routes in the cloud no record is left on the node.
fn expect_no_record(pair: &TwoNodes) -> Result<()> {
    let record = pair.a.outside_path("/run/flannel/cloud-routes.json");
    ensure!(!record.exists(), "the record is left");
    Ok(())
}

/// A row of a route table.
fn row(first: &str, second: &str, third: &str) -> [String; 3] {
    [first, second, third].map(str::to_owned)
}

/// Waits until a table has these rows and no others.
fn wait_rows(find: impl Fn() -> Result<Vec<[String; 3]>>, expected: &[[String; 3]]) -> Result<()> {
    let mut expected = expected.to_vec();
    expected.sort();
    eventually("the routes of the cloud", Duration::from_mins(1), || {
        let mut found = find()?;
        found.sort();
        ensure!(found == expected, "{found:?}, expected {expected:?}");
        Ok(())
    })
}

/// Runs `cleanup` with the variables by which it finds the cloud; its output.
fn cleanup(agent: &Agent, environment: &[(String, String)]) -> Result<String> {
    let mut command = agent.node().command(agent.argv(&["cleanup"]));
    for (name, value) in environment {
        command = command.env(name, value);
    }
    Ok(command.limit(Duration::from_secs(30)).run()?.stdout)
}
