//! The live dashboard: the terminal, its keys, and the time between two readings.
//!
//! Keys come from a thread that waits for them and ends with the process. The terminal is put back
//! in every case: ratatui also does it before the message of a panic.

use std::{borrow::Cow, thread};

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
use crate::top::{Board, SortKey, View, view::Palette};

const KEYS: &str = " q quit   s order   / filter   \u{2191}\u{2193} scroll   space stop and go on";
/// Rows of a page up or down.
const PAGE: usize = 10;

/// The last line, and what keys have changed.
#[derive(Debug)]
struct Screen {
    sort: SortKey,
    is_paused: bool,
    /// Rows above the screen.
    offset: usize,
    filter: String,
    /// True while the filter is typed.
    is_typing: bool,
}

impl Screen {
    /// Takes a key in. Returns false if it ends the program.
    fn press(&mut self, code: KeyCode) -> bool {
        if self.is_typing {
            self.type_in(code);
            return true;
        }
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => (self.is_typing, self.filter) = (true, String::new()),
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.offset += 1,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(PAGE),
            KeyCode::PageDown => self.offset += PAGE,
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
        true
    }

    fn type_in(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.offset = 0;
    }

    fn last_line(&self) -> String {
        match (self.is_typing, &*self.filter) {
            (true, filter) => format!(" /{filter}_   enter keeps it, escape ends it"),
            (false, "") => KEYS.to_owned(),
            (false, filter) => format!(" only {filter:?}, / for another  {KEYS}"),
        }
    }
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
    let (sort, filter) = (options.sort, options.filter.clone());
    let mut screen = Screen { sort, is_paused: false, offset: 0, filter, is_typing: false };
    let mut board = source.board(sort, &options.state.state_dir).await?;
    // The first tick is at once, and two readings at one time have no rate.
    ticks.tick().await;
    loop {
        draw(terminal, &board, &mut screen, palette)?;
        tokio::select! {
            _ = stop.wait() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(Key::Interrupt) => return Ok(()),
                Some(Key::Pressed(code)) if !screen.press(code) => return Ok(()),
                Some(Key::Pressed(_)) if board.sort != screen.sort => board.order(screen.sort),
                Some(Key::Pressed(_) | Key::Redraw) => {}
            },
            _ = ticks.tick(), if !screen.is_paused => {
                board = source.board(screen.sort, &options.state.state_dir).await?;
            }
        }
    }
}

fn draw(terminal: &mut DefaultTerminal, board: &Board, screen: &mut Screen, palette: Palette) -> anyhow::Result<()> {
    let mut shown = Cow::Borrowed(board);
    if !screen.filter.is_empty() {
        shown.to_mut().retain(&screen.filter);
    }
    // Not beyond the last row, from which the way up would seem to do nothing.
    screen.offset = screen.offset.min(shown.flows.len().max(shown.peers.len()).saturating_sub(1));
    let keys = screen.last_line();
    let view = View { board: &shown, palette, keys: &keys, offset: screen.offset };
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
        Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => Some(match code {
            // In raw mode the terminal makes no signal of it.
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
            code => Key::Pressed(*code),
        }),
        _ => None,
    }
}

/// An event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// A key.
    Pressed(KeyCode),
    /// The keys of SIGINT.
    Interrupt,
    /// The terminal has another size.
    Redraw,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen() -> Screen {
        Screen { sort: SortKey::Rate, is_paused: false, offset: 0, filter: String::new(), is_typing: false }
    }

    fn pressed(screen: &mut Screen, keys: &str) {
        for letter in keys.chars() {
            let code = if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) };
            assert!(screen.press(code), "{letter:?} ends it");
        }
    }

    #[test]
    fn keys_do_as_the_last_line_says() {
        let mut screen = screen();
        pressed(&mut screen, "s jj");
        assert_eq!((screen.sort, screen.is_paused, screen.offset), (SortKey::Packets, true, 2));
        pressed(&mut screen, "kkk");
        assert_eq!(screen.offset, 0);
        assert!(!screen.press(KeyCode::Char('q')) && !screen.press(KeyCode::Esc));
        let press = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Interrupt));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), Some(Key::Pressed(KeyCode::Char('c'))));
    }

    #[test]
    fn a_filter_is_typed_kept_and_ended() {
        let mut screen = screen();
        pressed(&mut screen, "/qs\n");
        assert_eq!((&*screen.filter, screen.is_typing, screen.sort), ("qs", false, SortKey::Rate));
        assert!(screen.last_line().starts_with(" only \"qs\""), "{}", screen.last_line());
        pressed(&mut screen, "/1");
        assert_eq!(screen.last_line(), " /1_   enter keeps it, escape ends it");
        assert!(screen.press(KeyCode::Esc), "it ends only the filter");
        assert_eq!((&*screen.filter, &*screen.last_line()), ("", KEYS));
    }
}
