//! The identifiers that docs/reference/glossary.md names exist in the sources.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::sources::{identifiers, quoted, read, rust_files};

/// Returns a line for each identifier that no source has.
pub(super) fn findings(page: &Path, sources: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let text = read(page)?;
    let mut words = BTreeSet::new();
    for folder in sources {
        for (_, source) in rust_files(folder)? {
            words.extend(identifiers(&source).map(str::to_owned));
        }
    }
    let missing = |identifier: &String| !words.contains(identifier);
    let named = named(&text).into_iter().filter(missing);
    Ok(named
        .map(|identifier| format!("{}: no source has `{identifier}`", page.display()))
        .collect())
}

/// Returns the identifiers in the last column of all tables: of a path its last segment. Flags and
/// addresses are none.
fn named(page: &str) -> BTreeSet<String> {
    let cells = page
        .lines()
        .filter_map(|line| line.trim_end_matches([' ', '|']).rsplit_once('|'));
    let quoted = cells.flat_map(|(_, cell)| quoted(cell));
    let last = quoted
        .filter(|name| !name.starts_with(['-', '/']))
        .filter_map(|name| name.rsplit("::").next());
    last.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_the_last_column() {
        let page = "| term | meaning | in the code |\n| a | see `other` | `b::C`, `D` |\n| e | f | \
            `--flag` |\n| g | h | |";
        assert_eq!(named(page).into_iter().collect::<Vec<_>>(), ["C", "D"]);
    }
}
