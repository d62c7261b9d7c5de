//! The live dashboard: the terminal, its keys, and the time between two readings.
//!
//! Keys come from a thread that waits for them and ends with the process. The terminal is put back
//! in every case: ratatui also does it before the message of a panic.

use std::thread;

use anyhow::Context as _;
use flannel_host::signals::Stop;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{MissedTickBehavior, interval},
};

use super::{Source, TopOptions};
use crate::top::{Board, View, view::Palette};

const KEYS: &str = " q quit   s order of peers and flows   space stop and go on";

/// A key that does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Sort,
    Pause,
    /// The terminal has another size.
    Redraw,
}

/// Draws until the user quits.
pub(super) async fn run(source: Source, options: &TopOptions, palette: Palette) -> anyhow::Result<()> {
    let stop = Stop::listen().context("cannot listen for signals")?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = follow(&mut terminal, source, options, palette, stop).await;
    ratatui::try_restore().context("cannot put the terminal back")?;
    ended
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
    let (mut sort, mut is_paused) = (options.sort, false);
    let mut board = source.board(sort, &options.state.state_dir).await?;
    // The first tick is at once, and two readings at one time have no rate.
    ticks.tick().await;
    loop {
        draw(terminal, &board, palette)?;
        tokio::select! {
            _ = stop.wait() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(Key::Quit) => return Ok(()),
                Some(Key::Sort) => {
                    sort = sort.next();
                    board.order(sort);
                }
                Some(Key::Pause) => is_paused = !is_paused,
                Some(Key::Redraw) => {}
            },
            _ = ticks.tick(), if !is_paused => board = source.board(sort, &options.state.state_dir).await?,
        }
    }
}

fn draw(terminal: &mut DefaultTerminal, board: &Board, palette: Palette) -> anyhow::Result<()> {
    let view = View { board, palette, keys: KEYS };
    terminal.draw(|frame| frame.render_widget(view, frame.area())).context("cannot draw")?;
    Ok(())
}

/// The keys from now on; the channel closes when the terminal cannot be read.
fn listen() -> UnboundedReceiver<Key> {
    let (sender, receiver) = unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if key(&event).is_some_and(|key| sender.send(key).is_err()) {
                return;
            }
        }
    });
    receiver
}

fn key(event: &Event) -> Option<Key> {
    match event {
        Event::Resize(..) => Some(Key::Redraw),
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            // In raw mode the terminal makes no signal of it.
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            KeyCode::Char('s') => Some(Key::Sort),
            KeyCode::Char(' ') => Some(Key::Pause),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        key(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_do_as_the_last_line_says() {
        for (name, code) in [(Key::Quit, 'q'), (Key::Sort, 's'), (Key::Pause, ' ')] {
            assert_eq!(press(KeyCode::Char(code), KeyModifiers::NONE), Some(name));
        }
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }
}
