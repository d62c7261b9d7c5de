//! `flannel-agent top`: the dashboard of this node, live or as one frame of text.
//!
//! It reads the pins at intervals, and asks the agent for its problems, if one answers in time.

pub mod keys;
mod options;
pub mod print;
mod screen;
mod source;

use std::io::{self, IsTerminal as _};

use anyhow::{Context as _, bail};
use flannel_command::{Answer, absent};
use flannel_document as document;
use flannel_host::{clock::unix_now as now, signals::Stop};
use flannel_top::{View, document::TopDocument, view::Palette};
use tokio::time::{Instant, interval_at};

pub use self::options::{TopOptions, interval};
use self::source::Source;

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
            "standard output is not a terminal; `--once` prints one frame, and `-o json` documents \
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
