//! One line of the file. As tolerant as flannel's daemon: quotes, comments and `export` are fine.

/// The content of one line.
pub(crate) enum Line<'a> {
    /// `NAME=VALUE`, the value without its quotes.
    Assignment { name: &'a str, value: &'a str },
    /// No `=`.
    Word(&'a str),
    /// Empty, or a comment.
    Nothing,
}

impl<'a> Line<'a> {
    pub(crate) fn read(line: &'a str) -> Self {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Self::Nothing;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        match line.split_once('=') {
            Some((name, value)) => Self::Assignment {
                name: name.trim(),
                value: unquoted(value.trim()),
            },
            None => Self::Word(line.trim()),
        }
    }
}

fn unquoted(value: &str) -> &str {
    let quoted = ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.split_once(*quote));
    let plain = value
        .split_once(" #")
        .map_or(value, |(value, _comment)| value.trim_end());
    quoted.map_or(plain, |(inside, _rest)| inside)
}

/// The value of one name, the last one if there are several. For a reader that takes what it finds.
pub fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().rev().find_map(|line| match Line::read(line) {
        Line::Assignment { name: found, value } if found == name => Some(value),
        _ => None,
    })
}
