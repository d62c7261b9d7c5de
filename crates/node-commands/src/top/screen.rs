//! The live dashboard: what is drawn, and the time between two readings.

use std::borrow::Cow;

use anyhow::Context as _;
use flannel_host::signals::Stop;
use flannel_top::{Board, View, view::Palette};
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    keys::{Screen, ScreenKey, listen, on_terminal},
    options::TopOptions,
    source::Source,
};

const KEYS: &str =
    " q quit   s order   p pods   / filter   \u{2191}\u{2193} scroll   space stop and go on";

/// Draws until the user quits.
pub(super) async fn run(
    source: Source,
    options: &TopOptions,
    palette: Palette,
) -> anyhow::Result<()> {
    let stop = Stop::listen().context("cannot listen for signals")?;
    on_terminal(async |terminal| follow(terminal, source, options, palette, stop).await).await
}

async fn follow(
    terminal: &mut DefaultTerminal,
    mut source: Source,
    options: &TopOptions,
    palette: Palette,
    mut stop: Stop,
) -> anyhow::Result<()> {
    let mut keys = listen();
    let mut ticks = interval(options.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut screen = Screen::new(KEYS, options.sort, options.filter.clone());
    screen.shows_pods = options.pods;
    let mut board = source.board(screen.sort, &options.state.state_dir).await?;
    // The first tick is at once, and two readings at one time have no rate.
    ticks.tick().await;
    loop {
        draw(terminal, &board, &mut screen, palette)?;
        tokio::select! {
            _ = stop.wait() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(ScreenKey::Interrupt) => return Ok(()),
                Some(ScreenKey::Pressed(code)) if !screen.press(code) => return Ok(()),
                Some(ScreenKey::Pressed(_)) if board.sort != screen.sort => {
                    board.order(screen.sort);
                }
                Some(ScreenKey::Pressed(_) | ScreenKey::Redraw) => {}
            },
            _ = ticks.tick(), if !screen.is_paused => {
                board = source.board(screen.sort, &options.state.state_dir).await?;
            }
        }
    }
}

fn draw(
    terminal: &mut DefaultTerminal,
    board: &Board,
    screen: &mut Screen,
    palette: Palette,
) -> anyhow::Result<()> {
    let mut shown = Cow::Borrowed(board);
    if !screen.filter.is_empty() {
        shown.to_mut().retain(&screen.filter);
    }
    if screen.shows_pods {
        shown.to_mut().shows_pods = true;
    }
    // Not beyond the last row, from which the way up would seem to do nothing.
    screen.offset = screen.offset.min(
        shown
            .flows
            .len()
            .max(shown.peers.len())
            .max(shown.pods.len())
            .saturating_sub(1),
    );
    let keys = screen.last_line();
    let view = View {
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
