//! `flannel-agent cluster top`: the busiest nodes, pairs and flows of a cluster, live on a
//! terminal, or as text or documents.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use flannel_host::signals::Stop;
use flannel_terminal::color::ColorOptions;
use ratatui::DefaultTerminal;
use tokio::select;

use super::access::ClusterAccess;
use flannel_cluster::top::{
    Follower, board::ClusterBoard, stream::StreamSettings, view::ClusterView,
};
use flannel_command::Output;
use flannel_document as document;
use flannel_node_commands::top::{
    interval,
    keys::{Screen, ScreenKey, listen, on_terminal},
    print,
};
use flannel_top::{SortKey, view::Palette};

const KEYS: &str = " q quit   / filter   \u{2191}\u{2193} scroll   space stop and go on";

/// The interval, the form of the output, and the cluster.
#[derive(Debug, Args)]
pub struct ClusterTopOptions {
    /// Time between two readings, which rates are the difference of: seconds, or for example 1m
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Print this number of frames as text, or of documents with -o json, and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The most pairs and flows; each node is asked for this number
    #[arg(long, value_name = "N", default_value_t = 50)]
    rows: usize,
    /// Show only rows with this text in a name, a mode, an address, a path, a protocol or a problem
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    color: ColorOptions,
    #[command(flatten)]
    access: ClusterAccess,
}

/// Runs the command, which prints by itself.
pub(super) async fn run(options: &ClusterTopOptions) -> anyhow::Result<String> {
    let client = options.access.client().await?;
    let stop = Stop::listen().context("cannot listen for signals")?;
    let palette = Palette {
        on: options.color.paint().0,
    };
    let settings = StreamSettings::new(options.interval, options.rows);
    let follower = Follower::start(client, options.access.pods(), settings).await?;
    if options.output.is_json() || options.count.is_some() || !io::stdout().is_terminal() {
        print(follower, options, palette, stop).await?;
    } else {
        on_terminal(async |terminal| show(terminal, follower, options, palette, stop).await)
            .await?;
    }
    Ok(String::new())
}

/// Prints a frame or a document for each interval, until their number is reached, the reader goes
/// away or a signal comes.
async fn print(
    mut follower: Follower,
    options: &ClusterTopOptions,
    palette: Palette,
    mut stop: Stop,
) -> anyhow::Result<()> {
    for number in 1.. {
        let mut board = select! {
            _ = stop.wait() => return Ok(()),
            board = follower.next() => board,
        };
        board.retain(&options.filter);
        let text = if options.output.is_json() {
            document::line(&board) + "\n"
        } else {
            let view = ClusterView {
                board: &board,
                palette,
                keys: "",
                offset: 0,
            };
            let between = if number > 1 { "\n" } else { "" };
            format!("{between}{}", print::text(view, view.height()))
        };
        if !print::is_read(&text)? || options.count == Some(number) {
            return Ok(());
        }
    }
    Ok(())
}

/// Draws until the user quits.
async fn show(
    terminal: &mut DefaultTerminal,
    mut follower: Follower,
    options: &ClusterTopOptions,
    palette: Palette,
    mut stop: Stop,
) -> anyhow::Result<()> {
    let mut keys = listen();
    let mut screen = Screen::new(KEYS, SortKey::Rate, options.filter.clone());
    let mut board = follower.board();
    loop {
        draw(terminal, &board, &mut screen, palette)?;
        select! {
            _ = stop.wait() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(ScreenKey::Interrupt) => return Ok(()),
                Some(ScreenKey::Pressed(code)) if !screen.press(code) => return Ok(()),
                Some(ScreenKey::Pressed(_) | ScreenKey::Redraw) => {}
            },
            next = follower.next(), if !screen.is_paused => board = next,
        }
    }
}

fn draw(
    terminal: &mut DefaultTerminal,
    board: &ClusterBoard,
    screen: &mut Screen,
    palette: Palette,
) -> anyhow::Result<()> {
    let mut shown = board.clone();
    shown.retain(&screen.filter);
    // Not beyond the last row, from which the way up would seem to do nothing.
    let rows = shown
        .nodes
        .len()
        .max(shown.pairs.len())
        .max(shown.flows.len());
    screen.offset = screen.offset.min(rows.saturating_sub(1));
    let keys = screen.last_line();
    let view = ClusterView {
        board: &shown,
        palette,
        keys: &keys,
        offset: screen.offset,
    };
    terminal
        .draw(|frame| frame.render_widget(view, frame.area()))
        .context("cannot draw")?;
    Ok(())
}
