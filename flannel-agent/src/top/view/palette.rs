//! The colours of the frame: the sixteen that every terminal has, or none.

use ratatui::{
    style::{Color, Modifier, Style},
    text::Span,
};

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    /// True for colours.
    pub on: bool,
}

impl Palette {
    fn style(self, style: Style) -> Style {
        if self.on { style } else { Style::new() }
    }

    pub(super) fn title<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    pub(super) fn good<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Green)))
    }

    pub(super) fn warn<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Yellow)))
    }

    pub(super) fn bad<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Red)))
    }

    pub(super) fn dim<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.frame())
    }

    pub(super) fn frame(self) -> Style {
        self.style(Style::new().fg(Color::Cyan))
    }
}
