//! Logging to standard error.

use std::io;

use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Logs our own events up to `level`; what libraries say only from warnings on. The Kubernetes client says nothing: it
/// reports each failure as an error of its own, which we get as a result, and tell when there is something to tell.
pub fn init(level: Level) {
    let ours = Targets::new()
        .with_target("flannel_agent", level)
        .with_target("flannel_ebpf", level)
        .with_target("kube_client", LevelFilter::OFF)
        .with_default(Level::WARN);
    let ansi = io::IsTerminal::is_terminal(&io::stderr());
    tracing_subscriber::registry().with(ours).with(fmt::layer().with_writer(io::stderr).with_ansi(ansi)).init();
}
