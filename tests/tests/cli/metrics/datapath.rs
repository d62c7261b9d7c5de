//! Metrics of the programs while packets flow.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use aya::sys::{Stats, enable_stats};
use flannel_tests::{Agent, eventually, fast::fast_pair};

use super::{
    promtool::promtool,
    scrape::{PORT_FLAG, Scrape},
};

const SOON: Duration = Duration::from_secs(20);
/// Flows are counted once a minute at most.
const NEXT_COUNT: Duration = Duration::from_secs(90);
/// Samples that grow with a connection whose packets are replayed both ways.
const GROWING: [&str; 6] = [
    "flannel_datapath_packets_total{program=\"from_pod\",reason=\"replayed\",verdict=\"redirect\"}",
    "flannel_datapath_bytes_total{program=\"from_pod\",reason=\"replayed\",verdict=\"redirect\"}",
    "flannel_flow_lookups_total{program=\"from_pod\",result=\"hit\"}",
    "flannel_flow_lookups_total{program=\"from_underlay\",result=\"hit\"}",
    "flannel_program_runs_total{program=\"from_pod\"}",
    "flannel_program_run_seconds_total{program=\"from_pod\"}",
];

/// Packets and bytes by sample, from `maps dump stats`.
fn dump(agent: &Agent) -> Result<BTreeMap<String, f64>> {
    let dump = agent.cli_json(&["maps", "dump", "stats", "-o", "json"])?;
    let mut counters = BTreeMap::new();
    for row in dump["stats"].as_array().context("no stats")? {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        for (metric, field) in [("packets", "packets"), ("bytes", "bytes")] {
            let labels = format!(
                "program=\"{}\",reason=\"{}\"",
                text("program"),
                text("reason")
            );
            let value = row[field].as_f64().with_context(|| format!("{row}"))?;
            counters.insert(format!("flannel_datapath_{metric}_total{{{labels}"), value);
        }
    }
    Ok(counters)
}

/// Returns the value of the sample whose name is `start` followed by a verdict label.
fn scraped(scrape: &Scrape, start: &str) -> Option<f64> {
    ["pass", "redirect", "drop"]
        .iter()
        .find_map(|verdict| scrape.get(&format!("{start},verdict=\"{verdict}\"}}")))
}

/// Each counter lies between what the maps held before and after; an answer may be a second old.
fn counters_agree(agent: &Agent) -> Result<Scrape> {
    eventually("the counters of the maps", SOON, || {
        let before = dump(agent)?;
        let scrape = Scrape::of(agent.node())?;
        let after = dump(agent)?;
        for (start, least) in &before {
            let value =
                scraped(&scrape, start).with_context(|| format!("no {start}: {}", scrape.text))?;
            let most = after.get(start).context("a counter went")?;
            ensure!(
                (*least..=*most).contains(&value),
                "{start}: {value} is not in {least}..={most}"
            );
        }
        Ok(scrape)
    })
}

#[test]
fn counters_grow_with_the_traffic_and_are_those_of_the_maps() -> Result<()> {
    let pair = fast_pair("metricsfast", &[PORT_FLAG])?;
    let sender = &pair.sender;
    let mut talk = pair.talk()?;
    // For as long as this is open the kernel measures every program's run.
    let _measuring = enable_stats(Stats::RunTime)?;
    pair.talk_until_replayed(&mut talk, 20)?;
    let first = counters_agree(sender)?;
    promtool(
        "the metrics of an agent in mode fast",
        &["check", "metrics"],
        &first.text,
    )?;

    eventually("counters that grow", SOON, || {
        talk.exchange(100)?;
        let now = Scrape::of(sender.node())?;
        for sample in GROWING {
            let (before, after) = (first.value(sample)?, now.value(sample)?);
            ensure!(after > before, "{sample}: {before}, then {after}");
        }
        Ok(())
    })?;
    let second = counters_agree(sender)?;
    ensure!(
        second.value("flannel_datapath_mode{mode=\"fast\"}")? > 0.5,
        "{}",
        second.text
    );
    ensure!(
        second.value("flannel_fast_pods{part=\"full\"}")? > 0.5,
        "{}",
        second.text
    );
    ensure!(
        second.value("flannel_flow_table_capacity{family=\"ipv4\"}")? > 1000.0,
        "{}",
        second.text
    );
    eventually("the flows' count", NEXT_COUNT, || {
        talk.exchange(100)?;
        let scrape = Scrape::of(sender.node())?;
        let usable = scrape.value("flannel_flow_table_flows{family=\"ipv4\",state=\"usable\"}")?;
        ensure!(usable >= 2.0, "{usable} flows");
        Ok(())
    })?;
    sender.set_mode("encap")?;
    eventually("no flows in mode encap", SOON, || {
        let scrape = Scrape::of(sender.node())?;
        ensure!(
            scrape
                .get("flannel_flow_table_flows{family=\"ipv4\",state=\"usable\"}")
                .is_none(),
            "{}",
            scrape.text
        );
        Ok(())
    })
}
