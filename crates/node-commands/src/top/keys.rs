//! The keys of a live screen, and what they change.
//!
//! Keys come from a thread that waits for them and ends with the process. The terminal is put back
//! in every case: ratatui also does it before the message of a panic.

use std::thread;

use anyhow::Context as _;
use flannel_top::SortKey;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Rows of a page up or down.
const PAGE: usize = 10;

/// The last line, and what keys have changed.
#[derive(Debug)]
pub struct Screen {
    /// The keys, as the last line has them.
    keys: &'static str,
    /// The order of rows.
    pub sort: SortKey,
    /// True while the rates stand still.
    pub is_paused: bool,
    /// Rows above the screen.
    pub offset: usize,
    /// The text that a row must contain.
    pub filter: String,
    /// True if pods are shown in place of peers, where there are pods to show.
    pub shows_pods: bool,
    /// True while the filter is typed.
    is_typing: bool,
}

impl Screen {
    /// A screen that shows all rows, with this last line.
    pub const fn new(keys: &'static str, sort: SortKey, filter: String) -> Self {
        Self {
            keys,
            sort,
            is_paused: false,
            offset: 0,
            filter,
            shows_pods: false,
            is_typing: false,
        }
    }

    /// Takes a key in. Returns false if it ends the program.
    pub fn press(&mut self, code: KeyCode) -> bool {
        if self.is_typing {
            self.type_in(code);
            return true;
        }
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p') => (self.shows_pods, self.offset) = (!self.shows_pods, 0),
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

    /// The last line.
    pub fn last_line(&self) -> String {
        match (self.is_typing, &*self.filter) {
            (true, filter) => format!(" /{filter}_   enter keeps it, escape ends it"),
            (false, "") => self.keys.to_owned(),
            (false, filter) => format!(" only {filter:?}, / for another  {}", self.keys),
        }
    }
}

/// Runs a live screen on the terminal.
pub async fn on_terminal(
    follow: impl AsyncFnOnce(&mut DefaultTerminal) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = follow(&mut terminal).await;
    ratatui::try_restore().context("cannot put the terminal back")?;
    ended
}

/// The keys from now on; the channel closes when the terminal cannot be read.
pub fn listen() -> UnboundedReceiver<ScreenKey> {
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

fn key(event: &Event) -> Option<ScreenKey> {
    match event {
        Event::Resize(..) => Some(ScreenKey::Redraw),
        Event::Key(KeyEvent {
            code,
            modifiers,
            kind: KeyEventKind::Press,
            ..
        }) => Some(match code {
            // In raw mode the terminal makes no signal of it.
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => ScreenKey::Interrupt,
            code => ScreenKey::Pressed(*code),
        }),
        _ => None,
    }
}

/// An event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenKey {
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
        Screen::new("q quit", SortKey::Rate, String::new())
    }

    fn pressed(screen: &mut Screen, keys: &str) {
        for letter in keys.chars() {
            let code = if letter == '\n' {
                KeyCode::Enter
            } else {
                KeyCode::Char(letter)
            };
            assert!(screen.press(code), "{letter:?} ends it");
        }
    }

    #[test]
    fn keys_do_as_the_last_line_says() {
        let mut screen = screen();
        pressed(&mut screen, "s jj");
        assert_eq!(
            (screen.sort, screen.is_paused, screen.offset),
            (SortKey::Packets, true, 2)
        );
        pressed(&mut screen, "kkk");
        assert_eq!(screen.offset, 0);
        pressed(&mut screen, "jjp");
        assert_eq!((screen.shows_pods, screen.offset), (true, 0));
        assert!(!screen.press(KeyCode::Char('q')) && !screen.press(KeyCode::Esc));
        let press = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(
            press(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(ScreenKey::Interrupt)
        );
        assert_eq!(
            press(KeyCode::Char('c'), KeyModifiers::NONE),
            Some(ScreenKey::Pressed(KeyCode::Char('c')))
        );
    }

    #[test]
    fn a_filter_is_typed_kept_and_ended() {
        let mut screen = screen();
        pressed(&mut screen, "/qs\n");
        assert_eq!(
            (&*screen.filter, screen.is_typing, screen.sort),
            ("qs", false, SortKey::Rate)
        );
        assert!(
            screen.last_line().starts_with(" only \"qs\""),
            "{}",
            screen.last_line()
        );
        pressed(&mut screen, "/1");
        assert_eq!(screen.last_line(), " /1_   enter keeps it, escape ends it");
        assert!(screen.press(KeyCode::Esc), "it ends only the filter");
        assert_eq!((&*screen.filter, &*screen.last_line()), ("", "q quit"));
    }
}
