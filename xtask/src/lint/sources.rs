//! The Rust files of a folder, and what is comment in a line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Returns all Rust files below a folder, in order.
pub(super) fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading the folder {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Splits a line into code and comment, slashes included. String literals of several lines are not followed.
pub(super) fn split_comment(line: &str) -> (&str, &str) {
    let (mut in_string, mut at) = (false, 0);
    let bytes = line.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            // A character literal with a quotation mark.
            b'\'' if !in_string && bytes.get(at + 1) == Some(&b'"') && bytes.get(at + 2) == Some(&b'\'') => at += 2,
            b'/' if !in_string && bytes.get(at + 1) == Some(&b'/') => return line.split_at(at),
            _ => {}
        }
        at += 1;
    }
    (line, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_separated_from_strings() {
        assert_eq!(split_comment("let a = 1; // one"), ("let a = 1; ", "// one"));
        assert_eq!(split_comment(r#"let url = "http://here"; // it"#), (r#"let url = "http://here"; "#, "// it"));
        assert_eq!(split_comment(r#"let quote = '"'; // it"#), (r#"let quote = '"'; "#, "// it"));
        assert_eq!(split_comment(r#"let text = "\"// none";"#), (r#"let text = "\"// none";"#, ""));
    }
}
