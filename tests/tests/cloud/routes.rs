//! The route of a node, and what is cleared away with it.

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{config, etcd::CONFIG_KEY, topology::Stack},
};
use serde_json::{Value, json};

use super::{
    Ec2, cleanup, expect_no_record, expect_stock_form, instance, put_stock_lease, row, subnet,
    succeed_and_change_nothing, wait_cloud, wait_rows,
};

/// Waits until a table has these routes and no others.
fn wait_routes(ec2: &Ec2, table: &str, expected: &[[String; 3]]) -> Result<()> {
    wait_rows(|| ec2.routes(table), expected)
}

/// The routes were made and cleared away, by the agent's status.
fn expect_status(agent: &Agent) -> Result<()> {
    let status = wait_cloud(agent, "a status", |cloud| cloud["changes"]["deleted"] == 2)?;
    let changes = json!({ "created": 1, "replaced": 0, "deleted": 2 });
    assert_eq!(
        (&status["cloud"]["changes"], &status["cloud"]["error"]),
        (&changes, &json!(null)),
        "{status}"
    );
    assert_eq!(
        (&status["mode"]["effective"], &status["devices"]),
        (&json!("fast"), &json!([])),
        "{status}"
    );
    assert_eq!(agent.peer_status("192.168.1.13")?["way"], "cloud");
    Ok(())
}

/// The route is removed, led elsewhere, and back each time.
fn repair_each_change(
    ec2: &Ec2,
    agent: &Agent,
    subnet: &str,
    complete: &[[String; 3]],
) -> Result<()> {
    let (table, other) = (ec2.fact("table"), ec2.fact("other"));
    ec2.call(
        "ec2",
        "delete_route",
        &json!({ "RouteTableId": table, "DestinationCidrBlock": subnet }),
    )?;
    wait_routes(ec2, table, complete)?;
    ec2.route("replace_route", table, subnet, other)?;
    wait_routes(ec2, table, complete)?;
    let changes = json!({ "created": 2, "replaced": 1, "deleted": 2 });
    wait_cloud(agent, "repairs", |cloud| {
        cloud["changes"] == changes && cloud["present"] == true
    })?;
    Ok(())
}

#[test]
fn a_node_keeps_its_route_and_clears_away_what_leads_nowhere() -> Result<()> {
    let Some((pair, ec2)) = instance("cloud-route")? else {
        return Ok(());
    };
    let (table, own, other) = (ec2.fact("table"), ec2.fact("own"), ec2.fact("other"));
    put_stock_lease(&pair)?;
    ec2.blackhole(table, &["10.244.9.0/24", "10.244.13.0/24", "10.99.9.0/24"])?;
    ec2.route("create_route", table, "10.244.10.0/24", own)?;
    ec2.route("create_route", table, "10.244.11.0/24", other)?;
    ec2.route("create_route", table, "10.99.10.0/24", own)?;
    ensure!(ec2.checks_source()?, "a fresh interface checks");
    let gone = ec2
        .routes(table)?
        .into_iter()
        .find(|row| row[0] == "10.244.13.0/24")
        .expect("a blackhole")[1]
        .clone();
    // Of another node without a lease, of one with a lease, and outside the pod network.
    let left = [
        row("10.244.11.0/24", other, "active"),
        row("10.244.13.0/24", &gone, "blackhole"),
        row("10.99.9.0/24", &gone, "blackhole"),
        row("10.99.10.0/24", own, "active"),
    ];

    let agent = pair.a.ready_agent(Ec2::agent(pair.options()?))?;
    let subnet = subnet(&agent)?;
    let complete = [&left[..], &[row(&subnet, own, "active")]].concat();
    wait_routes(&ec2, table, &complete)?;
    ensure!(!ec2.checks_source()?, "the VPC drops packets of pods");
    expect_status(&agent)?;
    assert_eq!(pair.a.subnet_env()?.mtu, 1500, "as stock flannel's");
    expect_stock_form(&pair, &subnet)?;

    repair_each_change(&ec2, &agent, &subnet, &complete)?;
    succeed_and_change_nothing(&agent, 2)?;
    wait_routes(&ec2, table, &complete)?;

    agent.sigterm_and_wait()?;
    let done = cleanup(&agent, &Ec2::environment())?;
    ensure!(
        done.contains(&format!(
            "remove the route {subnet} to {own} from the route table {table} in "
        )),
        "{done}"
    );
    wait_routes(&ec2, table, &left)?;
    expect_no_record(&pair)?;
    Ok(())
}

#[test]
fn named_tables_get_the_route_and_one_that_is_no_longer_named_loses_it() -> Result<()> {
    let Some((pair, ec2)) = instance("cloud-named")? else {
        return Ok(());
    };
    let made = ec2.call(
        "ec2",
        "create_route_table",
        &json!({ "VpcId": ec2.fact("vpc") }),
    )?;
    let (second, main) = (
        made["RouteTable"]["RouteTableId"]
            .as_str()
            .unwrap_or_default(),
        ec2.fact("table"),
    );
    let configure = |tables: Value| {
        let backend = json!({ "Type": "aws-vpc", "RouteTableID": tables }).to_string();
        pair.etcd
            .put(CONFIG_KEY, &config(Stack::V4, &backend), None)
    };
    configure(json!([second]))?;
    // The role may do nothing, so these keys count; and the API has TLS, as Amazon's.
    ec2.permit(&["DescribeInstances"])?;
    let [id, secret] = ec2.administrator();
    let mut options = Ec2::agent(pair.options()?);
    options
        .environment
        .push(("AWS_ACCESS_KEY_ID".to_owned(), id.to_owned()));
    options
        .environment
        .push(("AWS_SECRET_ACCESS_KEY".to_owned(), secret.to_owned()));
    options.environment.extend(Ec2::tls());
    let agent = pair.a.ready_agent(options)?;
    let own = [row(&subnet(&agent)?, ec2.fact("own"), "active")];
    wait_routes(&ec2, second, &own)?;
    wait_routes(&ec2, main, &[])?;
    agent.sigterm_and_wait()?;
    configure(json!(main))?;
    agent.restart()?;
    agent.wait_ready()?;
    wait_routes(&ec2, main, &own)?;
    wait_routes(&ec2, second, &[])
}
