//! The log.

use clap::Args;
use flannel_logging::LogFormat;
use tracing::Level;

use super::{OneOf, check::Checks};

/// Options of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The most detailed level.
    pub level: Level,
    /// The format of lines.
    pub format: LogFormat,
}

/// Flags of the log.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Log")]
pub(super) struct LogFlags {
    /// Format of log lines on standard error: `text`, `json` with one object each, or `klog` as
    /// stock flannel writes them
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = OneOf::flag(["text", "json", "klog"]),
        hide_possible_values = true,
    )]
    log_format: String,
    /// Log verbosity: 0 = info, 1-5 = debug, 6+ = trace
    #[arg(
        long = "v",
        value_name = "LEVEL",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    v: i64,
}

impl LogFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> LogOptions {
        let formats = [
            ("text", LogFormat::Text),
            ("json", LogFormat::Json),
            ("klog", LogFormat::Klog),
        ];
        let format = checks.choice(
            "log-format",
            &self.log_format,
            &formats,
            "text, json or klog",
        );
        LogOptions {
            level: log_level(self.v),
            format,
        }
    }
}

/// klog's levels, of which flannel uses 1, 2, 4, 6 and 10, on tracing's scale.
fn log_level(v: i64) -> Level {
    match v {
        ..=0 => Level::INFO,
        1..=5 => Level::DEBUG,
        _ => Level::TRACE,
    }
}
