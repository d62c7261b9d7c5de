//! The dashboard's panels on a real Prometheus that scrapes two agents.

use std::{fs, io::ErrorKind, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, ChildGuard, Node, Pair, eventually, fast::fast_pair, not_run};
use serde_json::Value;

use super::documents::dashboard;

/// The port of the agents.
const PORT: u16 = 9100;
/// The directory of Prometheus in its node.
const DIR: &str = "/run/prometheus";
const SERVER: &str = "http://127.0.0.1:9090";
/// Panels that may have nothing to show of two nodes which are well and send no echo requests.
const WITHOUT_DATA: [&str; 6] = [
    "Lower mode than asked for",
    "Problems",
    "Echo answers",
    "Round trips to peers",
    "Time of one run",
    "Repairs",
];
/// For a server to start and to scrape several times.
const SOON: Duration = Duration::from_mins(1);

/// An instance as Prometheus names it.
fn instance(agent: &Agent) -> Result<String> {
    let status = agent.status()?;
    let address = status["lease"]["public_ip"]
        .as_str()
        .context("a public address")?;
    Ok(format!("{address}:{PORT}"))
}

/// Starts Prometheus on a node; `None` if it is not installed.
fn start(node: &Node, instances: &[String; 2]) -> Result<Option<ChildGuard>> {
    match Command::new("prometheus").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    fs::create_dir_all(node.outside_path(DIR))?;
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: flannel\n  \
         static_configs:\n  - targets: {instances:?}\n"
    );
    fs::write(node.outside_path(format!("{DIR}/prometheus.yml")), config)?;
    let flags = [
        format!("--config.file={DIR}/prometheus.yml"),
        format!("--storage.tsdb.path={DIR}/data"),
        "--web.listen-address=127.0.0.1:9090".to_owned(),
        "--log.level=warn".to_owned(),
    ];
    let words = ["prometheus".to_owned()].into_iter().chain(flags);
    node.spawn("prometheus", words).map(Some)
}

/// The answer to an expression of the dashboard.
fn answer(node: &Node, expression: &str) -> Result<Vec<Value>> {
    let expression = expression
        .replace("$cluster", ".*")
        .replace("$instance", ".*")
        .replace("$__rate_interval", "1m")
        .replace("$__range", "5m");
    let output = node.run([
        "promtool",
        "query",
        "instant",
        "--format=json",
        SERVER,
        &expression,
    ]);
    let answer: Value = serde_json::from_str(&output.with_context(|| expression.clone())?.stdout)?;
    answer
        .as_array()
        .cloned()
        .with_context(|| format!("{expression}: {answer}"))
}

/// The expressions of all panels, with their titles.
fn expressions() -> Result<Vec<(String, String)>> {
    let dashboard = dashboard()?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let of = |panel: &Value| {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let expressions = targets
            .into_iter()
            .filter_map(|target| target["expr"].as_str().map(str::to_owned));
        expressions
            .map(move |expression| (title.clone(), expression))
            .collect::<Vec<_>>()
    };
    Ok(panels.iter().flat_map(of).collect())
}

fn expression(title: &str) -> Result<String> {
    let found = expressions()?.into_iter().find(|(of, _)| of == title);
    found
        .map(|(_, expression)| expression)
        .with_context(|| format!("no panel {title}"))
}

fn value(sample: &Value) -> f64 {
    sample["value"][1]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Both directions of the matrix, and the veths of both pods, have their bits.
fn traffic_is_shown(pair: &Pair, node: &Node, [near, far]: &[String; 2]) -> Result<()> {
    let (matrix, pods) = (
        expression("Who talks to whom")?,
        expression("Busiest pods")?,
    );
    let mut talk = pair.talk()?;
    eventually("the panels of traffic", SOON, || {
        talk.exchange(200)?;
        let (matrix, pods) = (answer(node, &matrix)?, answer(node, &pods)?);
        for (from, to) in [(near, far), (far, near)] {
            let is_pair = |sample: &&Value| {
                sample["metric"]["instance"] == **from && sample["metric"]["to"] == **to
            };
            let bits = matrix.iter().find(is_pair).map(value);
            ensure!(
                bits.is_some_and(|bits| bits > 1_000.0),
                "{from} to {to}: {matrix:#?}"
            );
        }
        for instance in [near, far] {
            let is_of = |sample: &&Value| {
                sample["metric"]["instance"] == **instance && value(sample) > 1_000.0
            };
            ensure!(
                pods.iter().any(|sample| is_of(&sample)),
                "no pod of {instance}: {pods:#?}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_prometheus_has_answers_for_the_panels_of_the_dashboard() -> Result<()> {
    let port = format!("--metrics-port={PORT}");
    let pair = fast_pair(
        "dashboard",
        &[
            "--metrics-ip=0.0.0.0",
            &port,
            "--metrics-peers=100",
            "--metrics-pods",
        ],
    )?;
    let (node, instances) = (
        pair.sender.node(),
        [instance(&pair.sender)?, instance(&pair.receiver)?],
    );
    let Some(server) = start(node, &instances)? else {
        not_run(
            "the dashboard on a real Prometheus",
            "no prometheus (`cargo xtask setup` unpacks it)",
        );
        return Ok(());
    };
    traffic_is_shown(&pair, node, &instances).with_context(|| server.log_tail(10))?;
    for (title, expression) in expressions()? {
        let has_data = !answer(node, &expression)?.is_empty();
        ensure!(
            has_data || WITHOUT_DATA.contains(&title.as_str()),
            "{title} shows nothing: {expression}"
        );
    }
    Ok(())
}
