//! `flannel-agent top`: the dashboard of this node, live or as one frame of text.
//!
//! It reads the pins at intervals, and asks the agent for its problems, if one answers in time.

pub mod keys;
pub mod print;
mod screen;

use std::{
    io::{self, IsTerminal as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use flannel_command::{Answer, Output, PinOptions, StateOptions, absent};
use flannel_datapath::PinRoot;
use flannel_document as document;
use flannel_flows::{
    history::{PERIOD, TrafficHistory},
    pod_traffic::link_counters,
};
use flannel_host::{clock::unix_now as now, duration, signals::Stop};
use flannel_observe::socket::{ask_history, ask_status};
use flannel_status::Problem;
use flannel_terminal::color::ColorOptions;
use flannel_top::{
    Board, SortKey, TopSample, View, board::NO_AGENT, document::TopDocument, view::Palette,
};
use tokio::time::{Instant, interval_at};

/// The time to wait for an agent that does not answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The interval, the order, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// Time between two readings, which rates are the difference of: seconds, or for example 1m
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Print one frame as text, after one interval, and end
    #[arg(long)]
    once: bool,
    /// With -o json: end after this number of documents
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with = "once",
    )]
    count: Option<u64>,
    /// Show pods in place of peers; -o json has both
    #[arg(long)]
    pods: bool,
    /// With -o json: the most peers, pods and flows in a document, the first in the order
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Show only peers, pods and flows with this text in an address, a name, a path, a protocol or
    /// a state
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    #[command(flatten)]
    output: Output,
    /// Order of peers, pods and flows
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    sort: SortKey,
    #[command(flatten)]
    color: ColorOptions,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// An interval during which a clock advances.
pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval.is_zero() {
        Err("rates need an interval of a second at least".to_owned())
    } else {
        Ok(interval)
    }
}

/// Runs the command. It prints by itself, unless one frame was asked for.
pub async fn run(options: &TopOptions) -> anyhow::Result<Answer> {
    let palette = Palette {
        on: options.color.paint().0,
    };
    let mut source = Source {
        pins: options.pins.found(&options.state).await,
        before: None,
        history: None,
    };
    let first = match source.sample().await {
        Ok(first) => first,
        Err(error) => return Err(absent::explain(error, &options.state).await),
    };
    source.before = Some(first);
    if options.output.is_json() {
        return stream(source, options).await;
    }
    if options.once {
        tokio::time::sleep(options.interval).await;
        let mut board = source.board(options.sort, &options.state.state_dir).await?;
        board.retain(&options.filter);
        board.shows_pods = options.pods;
        let view = View {
            board: &board,
            palette,
            keys: "",
            offset: 0,
        };
        return Ok(print::text(view, view.height()).into());
    }
    if !io::stdout().is_terminal() {
        bail!(
            "standard output is no terminal; `--once` prints one frame, and `-o json` documents \
             for programs"
        );
    }
    screen::run(source, options, palette).await?;
    Ok(String::new().into())
}

/// Prints a document on a line for each interval, until the reader goes away or a signal comes.
async fn stream(mut source: Source, options: &TopOptions) -> anyhow::Result<Answer> {
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    let mut ticks = interval_at(Instant::now() + options.interval, options.interval);
    let count = if options.once { Some(1) } else { options.count };
    for number in 1.. {
        tokio::select! {
            _ = stop.wait() => return Ok(String::new().into()),
            _ = ticks.tick() => {}
        }
        let mut board = source.board(options.sort, &options.state.state_dir).await?;
        board.retain(&options.filter);
        let line = document::line(&TopDocument::new(&board, now(), options.rows)) + "\n";
        if !print::is_read(&line)? || count == Some(number) {
            break;
        }
    }
    Ok(String::new().into())
}

/// The readings, one after the other.
struct Source {
    pins: PinRoot,
    before: Option<TopSample>,
    /// The last answer, and its time.
    history: Option<(Instant, Option<TrafficHistory>)>,
}

impl Source {
    async fn sample(&self) -> Result<TopSample, flannel_datapath::DatapathError> {
        TopSample::read(&self.pins, link_counters().await.as_ref())
    }

    /// The rates of the last ten minutes, asked for again when they have one point more.
    async fn history(&mut self, state_dir: &Path) -> Option<TrafficHistory> {
        if self
            .history
            .as_ref()
            .is_none_or(|(asked, _)| asked.elapsed() >= PERIOD)
        {
            let answer = tokio::time::timeout(PATIENCE, ask_history(state_dir)).await;
            self.history = Some((Instant::now(), answer.ok().and_then(Result::ok)));
        }
        self.history
            .as_ref()
            .and_then(|(_, history)| history.clone())
    }

    /// Reads the maps, and compares them with the reading before.
    async fn board(&mut self, sort: SortKey, state_dir: &Path) -> anyhow::Result<Board> {
        let now = self.sample().await?;
        let mut board = Board::new(self.before.as_ref(), &now, sort);
        self.before = Some(now);
        match tokio::time::timeout(PATIENCE, ask_status(state_dir)).await {
            Ok(Ok(status)) => {
                let ready = if status.ready { "ready" } else { "not ready" };
                board.agent = format!("agent {} {ready}", status.version);
                board.is_ready = Some(status.ready);
                board.problems = status.problems.iter().map(Problem::line).collect();
                board.codes = status.problems.iter().map(|problem| problem.code).collect();
            }
            Ok(Err(_)) | Err(_) => NO_AGENT.clone_into(&mut board.agent),
        }
        board.history = self.history(state_dir).await;
        Ok(board)
    }
}
