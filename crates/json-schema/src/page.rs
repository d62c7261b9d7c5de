//! Pages and schemas that are made from the code: compared with their files, or written.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Compares tables of a page, `docs/reference/PAGE`, with what the code makes of them, or writes
/// them with `FLANNEL_WRITE_DOCS=1`. Each table stands between two markers with its name.
///
/// # Panics
/// The page differs, or lacks a marker.
pub fn check(page: &str, tables: &[(&str, String)]) {
    let written = read(page);
    let right = tables.iter().fold(written.clone(), |text, (name, table)| {
        put_into(&text, name, table)
    });
    write_or_compare(&path(page), &written, &right);
}

/// The text of `docs/reference/PAGE`.
///
/// # Panics
/// It cannot be read.
pub fn read(page: &str) -> String {
    let path = path(page);
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// The path of a file below `docs/reference`.
pub(crate) fn path(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(page)
}

/// The page with this text between the markers of that name.
fn put_into(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name}: made from the code -->\n"),
        format!("<!-- end of {name} -->\n"),
    );
    let (before, rest) = page
        .split_once(&begin)
        .unwrap_or_else(|| panic!("the page lacks {begin}"));
    let (_, after) = rest
        .split_once(&end)
        .unwrap_or_else(|| panic!("the page lacks {end}"));
    [before, &begin, text, &end, after].concat()
}

/// Compares what a file has with what it should have, or writes it with `FLANNEL_WRITE_DOCS=1`.
pub(crate) fn write_or_compare(path: &Path, written: &str, right: &str) {
    if env::var_os("FLANNEL_WRITE_DOCS").is_some() {
        fs::write(path, right)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        return;
    }
    let difference = difference(written, right);
    assert!(
        difference.is_none(),
        "{} is not what FLANNEL_WRITE_DOCS=1 makes of it: {difference:?}",
        path.display()
    );
}

/// The first line, with its number, that differs between what is written and what should be.
fn difference<'a>(written: &'a str, right: &'a str) -> Option<(usize, &'a str, &'a str)> {
    let end = "the end";
    let lines = |text: &'a str| text.lines().chain(std::iter::repeat(end));
    let most = written.lines().count().max(right.lines().count());
    let mut pairs = (1..).zip(lines(written).zip(lines(right))).take(most);
    pairs
        .find(|(_, (written, right))| written != right)
        .map(|(number, (written, right))| (number, written, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n"), Some((2, "b", "c")));
        assert_eq!(difference("a\n", "a\nb\n"), Some((2, "the end", "b")));
        assert_eq!(difference("", "a\n"), Some((1, "the end", "a")));
    }
}
