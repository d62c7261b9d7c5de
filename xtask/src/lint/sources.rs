//! The Rust files of a folder, and what is comment in a line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Returns all Rust files below a folder, in order, with their texts.
pub(crate) fn rust_files(folder: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    files
        .into_iter()
        .map(|file| read(&file).map(|text| (file, text)))
        .collect()
}

/// Returns the words between two backticks of a text, each run of them.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Splits a text into its identifiers.
pub(super) fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
}

/// Reads a file.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// Returns the files of a crate but for those of tests, as paths below its sources, with their
/// code: without comments, and without the items of `#[cfg(test)]`.
pub(super) fn product_code(src: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for (file, text) in rust_files(src)? {
        let below = file.strip_prefix(src).context("a file of the crate")?;
        if !is_test(below) {
            files.push((below.to_owned(), code(&text)));
        }
    }
    Ok(files)
}

/// Returns true for the files of tests below the sources of a crate, which it declares under
/// `#[cfg(test)]` or under a feature for tests.
fn is_test(file: &Path) -> bool {
    const TESTS: [&str; 7] = [
        "tests",
        "testing",
        "fuzz",
        "properties",
        "recorded",
        "schema",
        "stable",
    ];
    let without = file.with_extension("");
    without
        .iter()
        .any(|name| TESTS.iter().any(|test| name == *test))
}

/// The code of a file, without comments and without the items of `#[cfg(test)]`.
pub(super) fn code(text: &str) -> String {
    let lines = product_lines(text);
    let code: Vec<&str> = lines
        .into_iter()
        .map(|(_, line)| split_comment(line).0)
        .collect();
    code.join("\n")
}

/// Returns the numbered lines of a file, from 1, without the items of `#[cfg(test)]`. Relies on
/// rustfmt: an item ends with a semicolon or brace at the indentation of its attribute.
pub(super) fn product_lines(text: &str) -> Vec<(usize, &str)> {
    let (mut kept, mut skipped_at) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        let indentation = line.len() - line.trim_start().len();
        match skipped_at {
            None if line.trim() == "#[cfg(test)]" => skipped_at = Some(indentation),
            None => kept.push((number, line)),
            Some(at) if at == indentation && line.ends_with([';', '}', ',']) => skipped_at = None,
            Some(_) => {}
        }
    }
    kept
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("reading the folder {}", folder.display()))?;
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

/// Splits a line into code and comment, slashes included. String literals of several lines are not
/// followed.
pub(super) fn split_comment(line: &str) -> (&str, &str) {
    let (mut in_string, mut at) = (false, 0);
    let bytes = line.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            // A character literal with a quotation mark.
            b'\''
                if !in_string
                    && bytes.get(at + 1) == Some(&b'"')
                    && bytes.get(at + 2) == Some(&b'\'') =>
            {
                at += 2;
            }
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
    fn items_of_tests_alone_are_left_out() {
        let text = "use a;\n#[cfg(test)]\nmod tests;\nfn b() \
            {\n    #[cfg(test)]\n    c();\n    d();\n}\n\
                    #[cfg(test)]\n#[expect(e)]\nmod f {\n    fn g() {}\n}\nfn h() {}";
        let numbers: Vec<_> = product_lines(text)
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        assert_eq!(numbers, [1, 4, 7, 8, 14]);
    }

    #[test]
    fn the_code_of_a_file_is_without_comments_and_tests() {
        let text = "//! A.\n\nfn a() {} // B\n/// C\nfn d() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(code(text), "\n\nfn a() {} \n\nfn d() {}");
        assert!(!is_test(Path::new("a/b.rs")) && is_test(Path::new("a/tests/b.rs")));
    }

    #[test]
    fn comments_are_separated_from_strings() {
        assert_eq!(
            split_comment("let a = 1; // one"),
            ("let a = 1; ", "// one")
        );
        assert_eq!(
            split_comment(r#"let url = "http://here"; // it"#),
            (r#"let url = "http://here"; "#, "// it")
        );
        assert_eq!(
            split_comment(r#"let quote = '"'; // it"#),
            (r#"let quote = '"'; "#, "// it")
        );
        assert_eq!(
            split_comment(r#"let text = "\"// none";"#),
            (r#"let text = "\"// none";"#, "")
        );
    }
}
