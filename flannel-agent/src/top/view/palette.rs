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

    pub(crate) fn title<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    pub(crate) fn good<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Green)))
    }

    pub(crate) fn warn<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Yellow)))
    }

    pub(crate) fn bad<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Red)))
    }

    pub(crate) fn dim<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.frame())
    }

    pub(crate) fn frame(self) -> Style {
        self.style(Style::new().fg(Color::Cyan))
    }
}
