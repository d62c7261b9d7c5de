//! Medians, a table that includes stock flannel's figures, and rows for other programs.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::store::Kind;

/// Medians of all rounds with one number of peers. Seconds, milliseconds for changes, MB of 10^6
/// bytes.
#[derive(Debug, Serialize)]
pub(super) struct Size {
    pub(super) store: Kind,
    pub(super) peers: u32,
    pub(super) rounds: u32,
    pub(super) to_last_route: f64,
    /// CPU time of the agent.
    pub(super) cpu_to_last_route: f64,
    pub(super) sync_to_last_route: f64,
    pub(super) floor_plain: Option<f64>,
    pub(super) floor_objects: f64,
    pub(super) with_objects: bool,
    pub(super) join: f64,
    pub(super) leave: f64,
    pub(super) events_per_join: f64,
    pub(super) events_per_leave: f64,
    pub(super) peak_rss: f64,
    pub(super) steady_rss: f64,
    /// The part of it that is not pages of files, as those of the executable are.
    pub(super) own_rss: f64,
    /// One-minute load average of the machine at the end.
    pub(super) load: f64,
}

impl Size {
    /// The floor of the objects the agent really made.
    fn floor(&self) -> f64 {
        if self.with_objects {
            self.floor_objects
        } else {
            self.floor_plain.unwrap_or(f64::NAN)
        }
    }
}

/// Recorded elsewhere with the same leases: version, peers, seconds from start to the last route,
/// resident MB.
const STOCK: [(&str, u32, f64, f64); 2] =
    [("0.28.9", 5_000, 6.6, 65.0), ("0.20.2", 5_000, 5.1, 40.0)];

/// Names of what was measured, and the values.
fn rows(size: &Size) -> Vec<(&'static str, String)> {
    let plain = size.floor_plain.map_or_else(
        || "not measured".to_owned(),
        |seconds| format!("{seconds:.3} s"),
    );
    let shape = if size.with_objects {
        "by nexthop objects"
    } else {
        "plain"
    };
    let ratio = size.sync_to_last_route / size.floor();
    vec![
        (
            "start to the last route",
            format!("{:.3} s", size.to_last_route),
        ),
        (
            "  CPU time of the agent",
            format!("{:.2} s", size.cpu_to_last_route),
        ),
        (
            "store in sync to the last route",
            format!("{:.3} s", size.sync_to_last_route),
        ),
        (
            "  to the kernel's floor of the same objects",
            format!("{ratio:.2} x (routes {shape})"),
        ),
        ("floor with plain routes", plain),
        (
            "floor with nexthop objects",
            format!("{:.3} s", size.floor_objects),
        ),
        (
            "one peer comes: store to route",
            format!("{:.2} ms, {} events", size.join, size.events_per_join),
        ),
        (
            "one peer goes: store to route",
            format!("{:.2} ms, {} events", size.leave, size.events_per_leave),
        ),
        ("resident memory, peak", format!("{:.1} MB", size.peak_rss)),
        (
            "resident memory, afterwards",
            format!("{:.1} MB", size.steady_rss),
        ),
        (
            "  without the executable",
            format!("{:.1} MB", size.own_rss),
        ),
    ]
}

/// The table of one size.
pub(super) fn table(size: &Size) -> String {
    let Size {
        store,
        peers,
        rounds,
        load,
        ..
    } = size;
    let mut text =
        format!("\n{peers} peers in {store}, {rounds} rounds, medians, load {load:.1}\n");
    for (what, value) in rows(size) {
        writeln!(text, "  {what:<46} {value}").expect("text grows");
    }
    let recorded = STOCK
        .iter()
        .filter(|stock| *store == Kind::Etcd && stock.1 == *peers);
    for (version, _, seconds, memory) in recorded {
        let stock = format!("stock flanneld {version} (recorded)");
        writeln!(
            text,
            "  {stock:<46} {seconds:.1} s from start to the last route, {memory:.0} MB"
        )
        .expect("text grows");
    }
    text
}

/// Of any values; between the two middle ones where their number is even.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    crate::bench::report::median(&values)
}

/// The machine's one-minute load average.
pub(super) fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text
        .split(' ')
        .next()
        .context("/proc/loadavg is empty")?
        .parse()?)
}
