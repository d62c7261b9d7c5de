//! One line for each packet, for people.

use std::{fmt::Write as _, time::Duration};

use flannel_common::abi::reason::Verdict;

use crate::monitor::{Names, Seen};

/// The line, with its end. The time of day is UTC, as in the log.
pub fn line(seen: &Seen<'_>, epoch: Duration, names: &mut Names) -> String {
    let time = seen.time(epoch);
    let of_day = time.as_secs() % 86_400;
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let way = if seen.is_outbound() { "Out" } else { "In " };
    let dropped = if seen.reason.verdict() == Verdict::Drop {
        " (dropped)"
    } else {
        ""
    };
    let mut line = format!(
        "{hours:02}:{minutes:02}:{seconds:02}.{:06} {:<13} {:<14} {:<9} {way} {}",
        time.subsec_micros(),
        seen.program.name(),
        format!("{}{dropped}", seen.reason.name()),
        names.devices.name(seen.ifindex()),
        seen.packet(),
    );
    // Writing to a string cannot fail.
    if let Some(size) = seen.gso_size() {
        let _ = write!(line, ", segments of {size}");
    }
    if let Some(outer) = seen.outer() {
        let _ = write!(line, ", tunnel {outer}");
    }
    let [source, destination] = names.ends(seen.packet().addresses());
    for (direction, end) in [("from", source), ("to", destination)] {
        if let Some(end) = end {
            let _ = write!(line, ", {direction} {end}");
        }
    }
    line.push('\n');
    line
}
