//! Logging to standard error; the last lines are kept for `bugtool` too.
//!
//! Nothing secret is ever logged, at any level: passwords are of `flannel_host`'s type `Secret`,
//! and what libraries say about requests, which may hold one, stays below the level that is let
//! through.

mod klog;
pub mod recent;

use std::io;

use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{self, writer::MakeWriterExt as _},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use self::klog::Klog;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// For programs that read klog's lines.
    Klog,
}

/// Logs our own events up to `level`, and those of libraries from warnings on. The Kubernetes
/// client logs nothing: it returns each failure as an error, and our code decides if it is logged.
pub fn init(level: Level, format: LogFormat) {
    tracing_subscriber::registry()
        .with(lines(format))
        .with(targets(level))
        .init();
}

/// A target is matched by its beginning: the names of all our crates begin alike.
fn targets(level: Level) -> Targets {
    Targets::new()
        .with_target("flannel_", level)
        .with_target("kube_client", LevelFilter::OFF)
        .with_default(Level::WARN)
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let ansi = io::IsTerminal::is_terminal(&io::stderr());
    let writer = io::stderr.and(|| recent::RecentLines);
    match format {
        LogFormat::Text => fmt::layer().with_writer(writer).with_ansi(ansi).boxed(),
        LogFormat::Klog => fmt::layer()
            .event_format(Klog)
            .with_ansi(false)
            .with_writer(writer)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(writer)
            .boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_each_of_our_crates_are_logged_and_few_of_libraries() {
        let targets = targets(Level::INFO);
        for ours in [
            "flannel_agent",
            "flannel_cloud::worker",
            "flannel_datapath::load",
            "flannel_ebpf",
        ] {
            assert!(
                targets.would_enable(ours, &Level::INFO)
                    && !targets.would_enable(ours, &Level::DEBUG),
                "{ours}"
            );
        }
        assert!(
            targets.would_enable("hyper", &Level::WARN)
                && !targets.would_enable("hyper", &Level::INFO)
        );
        assert!(!targets.would_enable("kube_client::client", &Level::ERROR));
    }
}
