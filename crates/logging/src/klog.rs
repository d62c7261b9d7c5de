//! Log lines as klog writes them, for programs that read those of stock flannel:
//! `I0629 14:34:46.447404      12 main_loop.rs:204] message field=value`.

use std::{fmt, process};

use jiff::Zoned;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// The format. Times are local, as klog's are; the number is the process's, as klog in Go has it.
pub(super) struct Klog;

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let place = Place {
            file: metadata.file(),
            line: metadata.line(),
        };
        write!(
            writer,
            "{} ",
            Header {
                level: *metadata.level(),
                at: &Zoned::now(),
                process: process::id(),
                place
            }
        )?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// A place in the source.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
}

/// All in front of the message.
struct Header<'a> {
    level: Level,
    at: &'a Zoned,
    process: u32,
    place: Place<'a>,
}

impl fmt::Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            // klog has no severity below: verbose lines are I.
            _ => 'I',
        };
        let time = self.at.strftime("%m%d %H:%M:%S%.6f");
        let file = self
            .place
            .file
            .and_then(|file| file.rsplit('/').next())
            .unwrap_or("???");
        write!(
            f,
            "{severity}{time} {:7} {file}:{}]",
            self.process,
            self.place.line.unwrap_or(1)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_klog() {
        let at: Zoned = "2026-06-29T14:34:46.447404+02:00[+02:00]"
            .parse()
            .expect("a time");
        let header = |level, file, line| {
            Header {
                level,
                at: &at,
                process: 12,
                place: Place { file, line },
            }
            .to_string()
        };
        let expected = "W0629 14:34:46.447404      12 main_loop.rs:204]";
        assert_eq!(
            header(
                Level::WARN,
                Some("flannel-agent/src/agent/main_loop.rs"),
                Some(204)
            ),
            expected
        );
        assert_eq!(
            header(Level::DEBUG, None, None),
            "I0629 14:34:46.447404      12 ???:1]"
        );
    }
}
