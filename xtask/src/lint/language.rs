//! The language of comments, texts and pages, as CONTRIBUTING.md has it: retired words, openings of
//! doc comments, length of lines.

use std::path::Path;

use super::sources::{product_lines, read, rust_files, split_comment};

/// Words that have a plainer one, in any case.
const RETIRED: [&str; 27] = [
    "anew",
    "of late",
    "somebody",
    "nobody",
    "whoever",
    "told",
    "tell",
    "tells",
    "telling",
    "mend",
    "mends",
    "mended",
    "vouch",
    "vouches",
    "vouched",
    "heed",
    "heeds",
    "heeded",
    "hear",
    "hears",
    "give way",
    "gives way",
    "beside",
    "gave way",
    "heard of",
    "mending",
    "vouching",
];
/// Openings of sub-clauses: a doc comment is a noun phrase or a sentence.
const OPENINGS: [&str; 7] = ["What", "Whether", "How", "Who", "Why", "Which", "Where"];
/// Columns of a line.
const COLUMNS: usize = 100;

/// Returns a line for each finding in the Rust files of a folder.
pub(super) fn findings(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (file, text) in rust_files(folder)? {
        for (line, problem) in problems(&text) {
            findings.push(format!("{}:{line}: {problem}", file.display()));
        }
    }
    Ok(findings)
}

/// Returns a line for each retired word in the string literals of a folder's product code: help,
/// logs and errors.
pub(super) fn string_findings(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (file, text) in rust_files(folder)? {
        if is_test(&file) {
            continue;
        }
        for (number, line) in product_lines(&text) {
            let strings = split_comment(line).0.split('"').skip(1).step_by(2);
            for (string, word) in strings.filter_map(|string| Some((string, retired_word(string)?)))
            {
                findings.push(format!(
                    "{}:{number}: the retired word \"{word}\": {string}",
                    file.display()
                ));
            }
        }
    }
    Ok(findings)
}

fn is_test(file: &Path) -> bool {
    file.iter().any(|part| {
        let name = part.to_string_lossy();
        name.trim_end_matches(".rs").ends_with("tests") || name.starts_with("properties")
    })
}

/// Returns a line for each retired word in a page, and for each line that is too long; code left
/// out.
pub(super) fn page_findings(page: &Path) -> anyhow::Result<Vec<String>> {
    let text = read(page)?;
    let mut found = Vec::new();
    for (number, line) in prose(&text) {
        let at = format!("{}:{number}", page.display());
        if let Some(word) = retired_word(&without_code(line)) {
            found.push(format!("{at}: the retired word \"{word}\""));
        }
        // Rows of tables and elements cannot be wrapped.
        if line.chars().count() > COLUMNS && !line.trim_start().starts_with(['|', '<']) {
            found.push(format!("{at}: prose of more than {COLUMNS} columns"));
        }
    }
    Ok(found)
}

/// Returns a line of a page without the text in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the numbered lines of a page, from 1, without blocks of code.
fn prose(page: &str) -> Vec<(usize, &str)> {
    let (mut lines, mut is_fenced) = (Vec::new(), false);
    for (number, line) in (1..).zip(page.lines()) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !line.starts_with("    ") {
            lines.push((number, line));
        }
    }
    lines
}

/// Returns the word to replace. With its capital letter the first one opens a sub-clause.
fn retired_word(text: &str) -> Option<&'static str> {
    const SUBJECT_CLAUSE: &str = "Whether";
    let opens = text.contains(SUBJECT_CLAUSE).then_some(SUBJECT_CLAUSE);
    opens.or_else(|| RETIRED.into_iter().find(|word| has_word(text, word)))
}

/// Returns line numbers, from 1, and problems.
fn problems(text: &str) -> Vec<(usize, String)> {
    let (mut problems, mut is_inside) = (Vec::new(), false);
    let mut raw_end = None;
    for (number, line) in (1..).zip(text.lines()) {
        let (code, comment) = split_comment(line);
        let is_raw = raw_end.is_some() || raw_start(code).is_some();
        raw_end = raw_end_after(if raw_end.is_some() { line } else { code }, raw_end);
        let words = comment.trim_start_matches(['/', '!']).trim();
        let is_doc = comment.starts_with("///") || comment.starts_with("//!");
        if is_doc && !is_inside && opens_with_clause(words) {
            problems.push((
                number,
                format!("a doc comment that opens with a sub-clause: {words}"),
            ));
        }
        if let Some(word) = retired_word(words) {
            problems.push((number, format!("the retired word \"{word}\": {words}")));
        }
        if line.chars().count() > COLUMNS && !is_raw && !is_unbreakable(line) {
            problems.push((number, format!("a line of more than {COLUMNS} columns")));
        }
        is_inside = is_doc && !words.is_empty();
    }
    problems
}

/// Returns true for a string literal without a space, and for a signature: rustfmt breaks it unless
/// a name is too long, as those of tests may be.
fn is_unbreakable(line: &str) -> bool {
    let line = line.trim();
    let name = line.trim_start_matches("pub ").trim_start_matches("async ");
    name.starts_with("fn ") || line.starts_with('"') && !line.contains(' ')
}

/// The end of the raw string literal that is open after this code, if one is; `end` is that of the
/// one open before.
fn raw_end_after(mut code: &str, mut end: Option<String>) -> Option<String> {
    loop {
        if let Some(end) = end.take() {
            let Some(at) = code.find(&end) else {
                return Some(end);
            };
            code = &code[at + end.len()..];
        }
        let (text, hashes) = raw_start(code)?;
        (code, end) = (text, Some(format!("\"{hashes}")));
    }
}

/// The text behind the beginning of the first raw string literal, and the hashes of that.
fn raw_start(code: &str) -> Option<(&str, &str)> {
    code.match_indices('r').find_map(|(at, _)| {
        let before = code[..at].trim_end_matches(['b', 'c']);
        let is_name = before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let (hashes, text) = code[at + 1..].split_once('"')?;
        (!is_name && hashes.chars().all(|hash| hash == '#')).then_some((text, hashes))
    })
}

fn opens_with_clause(words: &str) -> bool {
    let first = words
        .split(|character: char| !character.is_alphanumeric())
        .next();
    first.is_some_and(|first| OPENINGS.contains(&first))
}

fn has_word(text: &str, word: &str) -> bool {
    let lower = text.to_lowercase();
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    lower.match_indices(word).any(|(at, found)| {
        !is_letter(lower[..at].chars().next_back())
            && !is_letter(lower[at + found.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_and_openings_are_found_in_comments_alone() {
        let text = "/// What it is.\n/// And whether it holds.\nfn tell() {} // Nobody, anew.\nlet \
            told = \"told\";\n//\n\
                    /// Returns it.\n///\n/// Why not.\n// Storyteller.";
        let lines: Vec<_> = problems(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 3, 8]);
        assert!(retired_word("Reads. Whether it did.").is_some());
        assert!(retired_word("It is not known whether.").is_none());
    }

    #[test]
    fn code_of_a_page_is_no_prose() {
        let page = "Say `tell` to\n    somebody\n```\nanew\n```\nnobody";
        let found: Vec<_> = prose(page)
            .into_iter()
            .filter(|(_, line)| retired_word(&without_code(line)).is_some())
            .collect();
        assert_eq!(found, [(6, "nobody")]);
    }

    #[test]
    fn long_comments_are_found() {
        let text = format!("/// {}\nlet code = 1; // fine", "x".repeat(97));
        assert_eq!(problems(&text).len(), 1);
    }

    #[test]
    fn long_lines_are_found_unless_they_are_data() {
        let long = "x".repeat(97);
        let raw = format!("br#\"{long} \"\n{long} x x\n\"#, r\"\"");
        let name = format!("async fn {long}() -> Result<()>");
        let text = format!(
            "/// {long}\nlet code = {}; // fine\n    \"{long}\",\n    \"{long} x\",\n{raw}\n\
             {name}\nfor \"{long}\" in {long}\n",
            "1 + ".repeat(40)
        );
        let lines: Vec<_> = problems(&text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 4, 9]);
    }
}
