//! The page of typical changes: the files that it names exist, and each row of its table has the
//! number of files that its section lists, or that name what the change replaces.

use std::{collections::BTreeSet, path::Path};

use anyhow::Context as _;

use super::{
    TOOLS, crates,
    sources::{product_code, quoted, read},
};

const PAGE: &str = "docs/design/changes.md";
/// Changes whose files are those that name something, each with its section and that name.
const NAMED: [(&str, &str); 1] = [("Another etcd client", "etcd_client")];
/// Folders with files of the project, as a path on the page begins.
const FOLDERS: [&str; 6] = [
    "crates/", "deploy/", "docs/", "flannel-", "tests/", "xtask/",
];

/// Returns a line for each path that does not exist and for each number that is not right.
pub(super) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let text = read(&root.join(PAGE))?;
    let mut found: Vec<String> = paths(&text)
        .filter(|path| !root.join(path).exists())
        .map(|path| format!("{PAGE}: {path} does not exist"))
        .collect();
    for section in text.split("\n## ").skip(1) {
        let (title, body) = section.split_once('\n').context("a section with a body")?;
        let number = match NAMED.iter().find(|(change, _)| *change == title) {
            Some((_, name)) => files_with(root, name)?,
            None => listed(body).len(),
        };
        let row = text.lines().find(|row| is_of(row, title));
        match row {
            None => found.push(format!("{PAGE}: {title} has no row in the table")),
            Some(row) if written(row) == Some(number) => {}
            Some(row) => found.push(format!("{PAGE}: {title}: {number} files, and not {row}")),
        }
    }
    Ok(found)
}

/// Returns true for the row of a section, whose first letter may be a small one there.
fn is_of(row: &str, title: &str) -> bool {
    let name = row.strip_prefix("| [").and_then(|row| row.split_once(']'));
    name.is_some_and(|(name, _)| name.eq_ignore_ascii_case(title))
}

/// The number of the second column.
fn written(row: &str) -> Option<usize> {
    let column = row.split('|').nth(2)?;
    column.split([' ', ',']).find_map(|word| word.parse().ok())
}

/// The files that the items of a list name. Items that begin with `New` are files to come.
fn listed(body: &str) -> BTreeSet<&str> {
    let items = body.split("\n* ").skip(1);
    let items = items.map(|item| item.split("\n\n").next().unwrap_or_default());
    items
        .filter(|item| !item.starts_with("New"))
        .flat_map(paths)
        .collect()
}

/// The paths of the project in a text, without a folder's last slash.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    quoted(text)
        .filter(|word| word.contains('/') && FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|word| !word.contains([' ', '<', '*']))
}

/// The number of files whose product code has a name.
fn files_with(root: &Path, name: &str) -> anyhow::Result<usize> {
    let mut number = 0;
    for krate in crates(root)? {
        if TOOLS.contains(&krate.as_str()) {
            continue;
        }
        let files = product_code(&root.join(krate).join("src"))?;
        number += files.iter().filter(|(_, code)| code.contains(name)).count();
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_change_are_those_of_its_list() {
        let body = "\nBy `crates/a.rs`:\n\n* `crates/b.rs`: a row, and\n  `flannel-common/c.rs`.\n\
                    * New, next to it: `crates/d.rs`.\n\nMore in `crates/e.rs`.";
        assert_eq!(
            listed(body).into_iter().collect::<Vec<_>>(),
            ["crates/b.rs", "flannel-common/c.rs"]
        );
    }

    #[test]
    fn a_row_is_found_by_its_title_and_has_a_number() {
        assert!(is_of("| [new backend](#new-backend) | 4 |", "New backend"));
        assert!(!is_of("| [new flag](#new-flag) | 4 |", "New backend"));
        assert_eq!(written("| [a](#a) | 4, and 1 new |"), Some(4));
        assert_eq!(written("| [a](#a) | 6 in mode `encap` |"), Some(6));
    }
}
