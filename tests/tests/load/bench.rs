//! The bench, as short as it can be: every row is there, and mode `fast` was measured on replayed
//! packets. Speed is not judged.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
    thread::available_parallelism,
};

use anyhow::{Context as _, Result, bail, ensure};
use flannel_tests::{agent_binary, not_run};
use serde_json::Value;

const WORKLOADS: [&str; 8] = [
    "tcp_stream_1",
    "tcp_stream_8",
    "tcp_rr",
    "udp_rr",
    "tcp_crr",
    "tcp_crr_10",
    "udp_query",
    "udp_pps",
];

fn bench(args: &[&str]) -> Result<Output> {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(args)
        .output()?;
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    ensure!(
        output.status.success(),
        "{args:?}: {}\n{stdout}\n{stderr}",
        output.status
    );
    Ok(output)
}

fn read(file: &Path) -> Result<Vec<Value>> {
    serde_json::from_str(&fs::read_to_string(file)?).with_context(|| file.display().to_string())
}

#[test]
fn every_workload_is_measured_in_every_mode() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // In flanneld's place the agent takes flanneld's command line.
    let flanneld = dir.path().join("flanneld");
    symlink(agent_binary()?, &flanneld)?;
    let (rows, chart) = (dir.path().join("rows.json"), dir.path().join("chart.svg"));
    bench(&[
        "--quick",
        "--profile=wire",
        &format!("--peer-flanneld={}", flanneld.display()),
        &format!("--json={}", rows.display()),
        &format!("--svg={}", chart.display()),
    ])?;
    let mut missing = BTreeSet::new();
    for workload in WORKLOADS {
        for via in ["pod", "service"] {
            missing.extend(
                ["host", "kernel", "encap", "fast", "stock"]
                    .map(|mode| [workload, via, mode].map(str::to_owned)),
            );
        }
    }
    for row in read(&rows)? {
        let names =
            ["workload", "via", "mode"].map(|key| row[key].as_str().unwrap_or_default().to_owned());
        ensure!(missing.remove(&names), "twice, or not asked for: {row}");
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        ensure!(
            row["profile"] == "wire" && number("min") > 0.0 && number("median") <= number("max"),
            "{row}"
        );
    }
    ensure!(missing.is_empty(), "no rows for {missing:?}");
    let chart = fs::read_to_string(chart)?;
    ensure!(
        chart.matches("class=\"fast\"").count() == 17,
        "a bar for each row and one of the legend:\n{chart}"
    );
    let shown = bench(&["show", &rows.display().to_string()])?;
    ensure!(
        String::from_utf8_lossy(&shown.stdout)
            .contains("| TCP request/response, transactions/s | service |")
    );
    Ok(())
}

#[test]
fn client_and_server_may_have_a_cpu_each() -> Result<()> {
    if available_parallelism()?.get() < 2 {
        not_run("the bench on two CPUs", "this machine has one");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("rows.json");
    let load = [
        "--quick",
        "--cpus=2",
        "--profile=wire",
        "--workload=tcp_stream_1",
        "--via=pod",
        "--mode=host",
    ];
    bench(&[&load[..], &[&format!("--json={}", file.display())]].concat())?;
    let rows = read(&file)?;
    let [row] = rows.as_slice() else {
        bail!("one row: {rows:?}")
    };
    ensure!(
        row["cpus"] == "2" && row["sent_again"].is_f64() && row["median"].as_f64() > Some(0.0),
        "{row}"
    );
    Ok(())
}

#[test]
fn hits_and_misses_of_the_programs_stand_apart() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("costs.json");
    bench(&[
        "programs",
        "--seconds=0.3",
        &format!("--json={}", file.display()),
    ])?;
    let costs = read(&file)?;
    for (mode, program, reasons) in [
        ("fast", "from_pod", ["replayed"].as_slice()),
        ("fast", "from_pod", &["flow_unknown", "not_learned"]),
        ("fast", "from_underlay", &["replayed"]),
        ("fast", "from_underlay", &["not_tunnel"]),
        ("fast", "from_underlay", &["decapsulated", "flow_unknown"]),
        ("encap", "to_tunnel", &["encapsulated"]),
        ("encap", "from_underlay", &["tunnel_good"]),
        ("kernel", "to_tunnel", &["mode_kernel"]),
        ("kernel", "to_underlay", &["mode_kernel"]),
    ] {
        let is_alike = |cost: &&Value| {
            let counted: f64 = reasons
                .iter()
                .filter_map(|reason| cost["reasons"][reason].as_f64())
                .sum();
            let packets = cost["packets"].as_f64().unwrap_or(f64::INFINITY);
            cost["mode"] == mode && cost["program"] == program && counted > 0.95 * packets
        };
        let cost = costs.iter().find(is_alike);
        let cost = cost.with_context(|| {
            format!("no load of {program} {reasons:?} in mode {mode}: {costs:#?}")
        })?;
        ensure!(
            cost["nanoseconds"].as_f64().is_some_and(|time| time > 0.0),
            "{cost}"
        );
    }
    Ok(())
}
