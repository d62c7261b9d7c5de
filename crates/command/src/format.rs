//! The output and the options that the printing subcommands have in common.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use flannel_datapath::{PinRoot, maps::ConfigMap};
use flannel_document::{self as document, Document};
use flannel_host::duration;
use flannel_observe::socket::ask_status;
use flannel_status::Status;
use flannel_terminal::{
    color::{ColorOptions, Paint},
    wrap,
};
use tokio::time::timeout;

/// For the answer of an agent. One that hangs cannot say where its pins are.
const PATIENCE: Duration = Duration::from_secs(1);

/// The output of a command, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The text to print.
    pub text: String,
    /// 0, or another where the answer itself is bad news.
    pub code: u8,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, code: 0 }
    }
}

/// The output format of a command.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

impl Output {
    /// Returns true if JSON was asked for.
    pub const fn is_json(self) -> bool {
        matches!(self.format, Format::Json)
    }
}

/// The output format, and the colours of the one for people.
#[derive(Clone, Copy, Debug, Args)]
pub struct PrintOptions {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    color: ColorOptions,
}

impl PrintOptions {
    /// Returns true if documents are asked for.
    pub const fn is_json(self) -> bool {
        self.output.is_json()
    }

    /// Returns the document as JSON, or as the text that it makes for people: on a terminal as wide
    /// as that.
    pub fn print(self, document: &impl Document, text: impl FnOnce(Paint) -> String) -> String {
        if self.output.is_json() {
            json(document)
        } else {
            wrap::to_terminal(text(self.color.paint()))
        }
    }
}

/// The time to wait for a good answer.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitOptions {
    /// Wait until all is ready, at most so long: seconds, or for example 5m; 60s without a value
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "60s",
        value_parser = duration::parse
    )]
    pub wait: Option<Duration>,
}

impl WaitOptions {
    /// The longest time; nothing unless one was asked for.
    pub fn limit(self) -> Duration {
        self.asked().unwrap_or_default()
    }

    /// The time that was asked for.
    pub fn asked(self) -> Option<Duration> {
        self.wait.filter(|wait| !wait.is_zero())
    }
}

/// The location of the pins.
#[derive(Clone, Debug, Args)]
pub struct PinOptions {
    /// Directory of the pinned BPF objects
    #[arg(
        long,
        value_name = "DIR",
        env = "FLANNELD_BPF_PIN_ROOT",
        default_value = "/sys/fs/bpf/flannel"
    )]
    bpf_pin_root: PathBuf,
}

impl PinOptions {
    /// The pins there.
    pub fn root(&self) -> PinRoot {
        PinRoot::new(&self.bpf_pin_root)
    }

    /// The pins there or, if there are none, where a running agent has its own.
    pub async fn found(&self, state: &StateOptions) -> PinRoot {
        if !is_absent(&self.root()) {
            return self.root();
        }
        self.root_of(ask_at_once(&state.state_dir).await.ok().as_ref())
    }

    /// The pins there or, if there are none, where the agent says that it has its own.
    pub fn root_of(&self, status: Option<&Status>) -> PinRoot {
        let pins = self.root();
        let reported = status
            .and_then(|status| status.pin_root.as_deref())
            .map(|root| PinRoot::new(Path::new(root)));
        reported
            .filter(|reported| is_absent(&pins) && !is_absent(reported))
            .unwrap_or(pins)
    }
}

/// The answer of the agent, if it comes at once.
pub async fn ask_at_once(state_dir: &Path) -> io::Result<Status> {
    timeout(PATIENCE, ask_status(state_dir))
        .await
        .map_err(io::Error::from)?
}

fn is_absent(pins: &PinRoot) -> bool {
    ConfigMap::open(pins).is_err_and(|error| error.is_absent())
}

/// The location of the agent's state.
#[derive(Clone, Debug, Args)]
pub struct StateOptions {
    /// Directory of the agent's socket and state
    #[arg(
        long,
        value_name = "DIR",
        env = "FLANNELD_STATE_DIR",
        default_value = "/run/flannel"
    )]
    pub state_dir: PathBuf,
}

/// A document as indented JSON, with its final newline.
pub fn json(document: &impl Document) -> String {
    document::indented(document)
}
