//! The counters that are not zero.

use flannel_common::{program::Program, reason::Reason};
use flannel_datapath::{DatapathError, maps::StatsMap};
use flannel_terminal::table;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct StatsRow {
    program: &'static str,
    reason: &'static str,
    packets: u64,
    bytes: u64,
    meaning: &'static str,
}

pub(super) fn rows(map: &StatsMap) -> Result<Vec<StatsRow>, DatapathError> {
    let mut rows = Vec::new();
    for program in Program::ALL {
        for reason in Reason::ALL {
            let counter = map.get(program, reason)?;
            if counter.packets != 0 {
                let (name, meaning) = (reason.name(), reason.meaning());
                let (packets, bytes) = (counter.packets, counter.bytes);
                rows.push(StatsRow { program: program.name(), reason: name, packets, bytes, meaning });
            }
        }
    }
    Ok(rows)
}

pub(super) fn table(rows: &[StatsRow]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let texts = [row.program, row.reason].map(str::to_owned);
            let [program, reason] = texts;
            [program, reason, row.packets.to_string(), row.bytes.to_string(), row.meaning.to_owned()]
        })
        .collect();
    table::render(["PROGRAM", "REASON", "PACKETS", "BYTES", "MEANING"], &rows)
}
