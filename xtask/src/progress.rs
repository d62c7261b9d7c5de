//! Cargo's progress, for people and for logs: how many compilations are done, and what is compiled.
//!
//! Cargo draws a bar on a terminal and prints a line for each crate elsewhere. Tests run while it
//! compiles, so neither fits: here its bar is read, and a line now and then says the same. Pure.

use std::time::Duration;

/// The time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Words that begin a line for one crate: the bar says the same.
const STATUS: [&str; 9] = [
    "Adding",
    "Blocking",
    "Compiling",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Locking",
    "Updating",
];

/// A line of cargo's standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// The bar: compilations done, their number, and what is compiled now.
    Bar { done: u32, total: u32, now: &'a str },
    /// A line for one crate, or an empty one.
    Status,
    /// A warning, an error, or anything else that people need to see.
    Message(&'a str),
}

impl<'a> Line<'a> {
    /// Reads a line, which ends with a newline or with a carriage return.
    pub(crate) fn read(text: &'a str) -> Self {
        let plain = text.trim_start_matches(['\r', ' ']).trim_end();
        let plain = plain.strip_prefix("\u{1b}[K").unwrap_or(plain).trim_start();
        if let Some(bar) = plain.strip_prefix("Building [") {
            return read_bar(bar).unwrap_or(Self::Status);
        }
        let word = plain.split(' ').next().unwrap_or_default();
        if plain.is_empty() || STATUS.contains(&word) {
            Self::Status
        } else {
            Self::Message(text.trim_end())
        }
    }
}

/// Reads a bar such as `=====>   ] 12/482: ring, serde`.
fn read_bar(bar: &str) -> Option<Line<'_>> {
    let (_, rest) = bar.split_once("] ")?;
    let (counts, now) = rest.split_once(": ").unwrap_or((rest, ""));
    let (done, total) = counts.trim().split_once('/')?;
    Some(Line::Bar {
        done: done.parse().ok()?,
        total: total.parse().ok()?,
        now: now.trim(),
    })
}

/// Decides which bars become lines: the first, the last, and one every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Option<Duration>,
}

impl Progress {
    /// The line for a bar that was read at this time since the start; `None` if it is too early.
    pub(crate) fn line(
        &mut self,
        elapsed: Duration,
        done: u32,
        total: u32,
        now: &str,
    ) -> Option<String> {
        if self.last.is_some_and(|last| elapsed < last + BETWEEN_LINES) {
            return None;
        }
        self.last = Some(elapsed);
        Some(format!(
            "build: {done} of {total} compilations, {} s: {now}",
            elapsed.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_it_is() {
        let text = "    Building [======>        ] 231/482: kube-core, flannel-store  ";
        assert_eq!(
            Line::read(text),
            Line::Bar {
                done: 231,
                total: 482,
                now: "kube-core, flannel-store"
            }
        );
        assert_eq!(
            Line::read("\u{1b}[K    Building [> ] 0/7 "),
            Line::Bar {
                done: 0,
                total: 7,
                now: ""
            }
        );
    }

    #[test]
    fn what_people_need_is_passed_on() {
        assert_eq!(Line::read("   Compiling ring v0.17.14"), Line::Status);
        assert_eq!(Line::read(""), Line::Status);
        assert_eq!(
            Line::read("error[E0425]: no such name"),
            Line::Message("error[E0425]: no such name")
        );
        assert_eq!(
            Line::read("  --> src/main.rs:3:5"),
            Line::Message("  --> src/main.rs:3:5")
        );
    }

    #[test]
    fn a_line_is_due_every_ten_seconds() {
        let mut progress = Progress::default();
        let mut line = |seconds| progress.line(Duration::from_secs(seconds), 1, 2, "ring");
        assert_eq!(
            line(0).as_deref(),
            Some("build: 1 of 2 compilations, 0 s: ring")
        );
        assert_eq!(line(9), None);
        assert!(line(10).is_some() && line(11).is_none());
    }
}
