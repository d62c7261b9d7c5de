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

    /// A title, in bold.
    pub fn title<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    /// A text in the colour of what is well.
    pub fn good<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Green)))
    }

    /// A text in the colour of a warning.
    pub fn warn<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Yellow)))
    }

    /// A text in the colour of a fault.
    pub fn bad<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.style(Style::new().fg(Color::Red)))
    }

    /// A text that stands back.
    pub fn dim<'a>(self, text: impl Into<std::borrow::Cow<'a, str>>) -> Span<'a> {
        Span::styled(text, self.frame())
    }

    pub(crate) fn frame(self) -> Style {
        self.style(Style::new().fg(Color::Cyan))
    }
}
