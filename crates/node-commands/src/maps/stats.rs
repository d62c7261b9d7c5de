//! The counters that are not zero.

use flannel_common::abi::{program::Program, reason::Reason};
use flannel_datapath::{DatapathError, maps::StatsMap};
use flannel_terminal::table;
use serde::Serialize;

/// A counter of one program and reason.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub(super) struct StatsRow {
    /// The program.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ProgramName")
    )]
    program: &'static str,
    /// The reason of the verdict.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ReasonName")
    )]
    reason: &'static str,
    /// Packets since the maps were made. A packet of GSO or GRO counts once.
    packets: u64,
    /// Their bytes.
    bytes: u64,
    /// The meaning of the reason in words.
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
                rows.push(StatsRow {
                    program: program.name(),
                    reason: name,
                    packets,
                    bytes,
                    meaning,
                });
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
            [
                program,
                reason,
                row.packets.to_string(),
                row.bytes.to_string(),
                row.meaning.to_owned(),
            ]
        })
        .collect();
    table::render(["PROGRAM", "REASON", "PACKETS", "BYTES", "MEANING"], &rows)
}
