//! `docs/reference/metrics.md` and `deploy/monitoring/`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use flannel_metrics::{Metric, catalogue};
use serde_json::{Value, json};

use super::{super::docs::anchors, promtool::promtool};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(file(name)).with_context(|| name.to_owned())
}

pub(super) fn dashboard() -> Result<Value> {
    Ok(serde_json::from_str(&read(
        "deploy/monitoring/dashboard.json",
    )?)?)
}

#[test]
fn every_metric_is_documented_as_it_is() -> Result<()> {
    let page = read("docs/reference/metrics.md")?;
    let rows = page.lines().filter(|line| line.starts_with("| `flannel_"));
    let documented: BTreeSet<String> = rows.map(str::to_owned).collect();
    let row = |metric: &Metric| {
        let labels: Vec<_> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        format!(
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind,
            labels.join(", "),
            metric.help
        )
    };
    let wanted: BTreeSet<String> = catalogue::ALL.iter().map(row).collect();
    let missing: Vec<_> = wanted.difference(&documented).cloned().collect();
    ensure!(
        missing.is_empty(),
        "not in docs/reference/metrics.md:\n{}",
        missing.join("\n")
    );
    let surplus: Vec<_> = documented.difference(&wanted).cloned().collect();
    ensure!(
        surplus.is_empty(),
        "only in docs/reference/metrics.md:\n{}",
        surplus.join("\n")
    );
    Ok(())
}

/// Our metrics that a text speaks of, as the agent names them.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.starts_with("flannel_"))
        .map(without_suffix)
        .collect()
}

/// A histogram has three series.
fn without_suffix(name: &str) -> &str {
    let parts = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    let is_histogram = |name: &str| {
        catalogue::ALL
            .iter()
            .any(|metric| metric.name == name && metric.kind == "histogram")
    };
    parts.filter(|name| is_histogram(name)).unwrap_or(name)
}

#[test]
fn alerts_and_dashboard_speak_of_metrics_there_are() -> Result<()> {
    let known: BTreeSet<_> = catalogue::ALL.iter().map(|metric| metric.name).collect();
    for name in [
        "deploy/monitoring/alerts.yml",
        "deploy/monitoring/dashboard.json",
        "tests/tests/cli/metrics/alerts.test.yml",
    ] {
        let text = read(name)?;
        let used = metrics_in(&text);
        ensure!(used.len() > 10, "{name}: {used:?}");
        let unknown: Vec<_> = used.difference(&known).collect();
        ensure!(unknown.is_empty(), "{name} speaks of {unknown:?}");
    }
    Ok(())
}

#[test]
fn every_alert_says_what_to_do_and_is_tested() -> Result<()> {
    let (rules, tests, page) = (
        read("deploy/monitoring/alerts.yml")?,
        read("tests/tests/cli/metrics/alerts.test.yml")?,
        read("docs/reference/metrics.md")?,
    );
    let alerts: Vec<_> = rules.split("\n  - alert: ").skip(1).collect();
    ensure!(alerts.len() > 10, "{} alerts", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().unwrap_or_default();
        for part in [
            "    expr: ",
            "      severity: ",
            "      summary: ",
            "      description: ",
        ] {
            ensure!(alert.contains(part), "{name} has no {part}");
        }
        let runbook = alert
            .lines()
            .find_map(|line| line.strip_prefix("      runbook_url: "));
        let (document, section) = runbook
            .and_then(|link| link.split_once('#'))
            .with_context(|| format!("{name}: no runbook"))?;
        ensure!(
            anchors(&read(document)?).contains(section),
            "{name}: no section {section}"
        );
        ensure!(
            tests.contains(&format!("alertname=\"{name}\"")),
            "{name} is not tested"
        );
        ensure!(
            page.contains(&format!("\n| `{name}` | ")),
            "{name} is not in docs/reference/metrics.md"
        );
    }
    Ok(())
}

#[test]
fn promtool_takes_the_alerts_and_they_fire_when_they_should() -> Result<()> {
    let rules = file("deploy/monitoring/alerts.yml")
        .canonicalize()?
        .display()
        .to_string();
    promtool("the alerts' syntax", &["check", "rules", &rules], "")?;
    let dir = tempfile::tempdir()?;
    let tests = dir.path().join("alerts.test.yml");
    fs::write(
        &tests,
        read("tests/tests/cli/metrics/alerts.test.yml")?.replace("RULES", &rules),
    )?;
    promtool(
        "the alerts on series",
        &["test", "rules", &tests.display().to_string()],
        "",
    )
}

#[test]
fn promtool_takes_every_expression_of_the_dashboard() -> Result<()> {
    let dashboard = dashboard()?;
    ensure!(
        dashboard["schemaVersion"].as_u64() >= Some(36) && dashboard["uid"].is_string(),
        "no dashboard"
    );
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let expressions: Vec<_> = targets
        .map(|target| target["expr"].as_str().context("no expr"))
        .collect::<Result<_>>()?;
    ensure!(expressions.len() > 20, "{} expressions", expressions.len());
    let rule = |(number, expression): (usize, &&str)| {
        let record = format!("panel:{number}");
        json!({ "record": record, "expr": plain(expression) })
    };
    let rules: Vec<_> = expressions.iter().enumerate().map(rule).collect();
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("dashboard.yml");
    fs::write(
        &path,
        json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string(),
    )?;
    promtool(
        "the dashboard's expressions",
        &["check", "rules", &path.display().to_string()],
        "",
    )
}

/// Of two nodes that claim one subnet the matrix names one, and it has a column for each node and
/// not for each family.
#[test]
fn the_matrix_of_the_dashboard_names_both_nodes_of_a_pair() -> Result<()> {
    let dashboard = dashboard()?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let panel = panels
        .iter()
        .find(|panel| panel["title"] == "Who talks to whom")
        .context("no matrix")?;
    let grouping = &panel["transformations"][0]["options"];
    ensure!(
        grouping["rowField"] == "instance" && grouping["columnField"] == "to",
        "{grouping}"
    );
    let expression = panel["targets"][0]["expr"]
        .as_str()
        .context("no expression")?;
    let dir = tempfile::tempdir()?;
    let tests = dir.path().join("matrix.test.yml");
    fs::write(
        &tests,
        read("tests/tests/cli/metrics/matrix.test.yml")?.replace("EXPRESSION", &plain(expression)),
    )?;
    promtool(
        "the dashboard's matrix",
        &["test", "rules", &tests.display().to_string()],
        "",
    )
}

/// An expression without the variables of the dashboard.
fn plain(expression: &str) -> String {
    expression
        .replace("$__rate_interval", "5m")
        .replace("$instance", ".*")
        .replace("$cluster", ".*")
}

#[test]
fn panels_have_places_of_their_own() -> Result<()> {
    let dashboard = dashboard()?;
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let part = |name| {
            panel["gridPos"][name]
                .as_u64()
                .with_context(|| format!("no {name}: {}", panel["title"]))
        };
        let (x, y, w, h) = (part("x")?, part("y")?, part("w")?, part("h")?);
        ensure!(x + w <= 24, "{} is too wide", panel["title"]);
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            ensure!(taken.insert(place), "{} lies on another", panel["title"]);
        }
    }
    Ok(())
}
