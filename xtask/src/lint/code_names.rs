//! Names of code in the documents, such as `flannel_store::etcd::verify`: the module exists, or its
//! file has the item.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::sources::{identifiers, quoted, read};
use crate::workspace::{package_dirs, package_name};

/// The beginning of the names of all crates.
const CRATE: &str = "flannel_";

/// Returns a line for each name in a page that no source has.
pub(super) fn findings(root: &Path, pages: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let crates = crate_sources(root)?;
    let mut found = Vec::new();
    for page in pages {
        let text = read(page)?;
        for name in names(&text).filter(|name| !exists(&crates, name)) {
            let shown = page.strip_prefix(root).unwrap_or(page).display();
            found.push(format!("{shown}: no source has {name}"));
        }
    }
    Ok(found)
}

/// The folders with the sources of crates, by the names that code has for these.
fn crate_sources(root: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut sources = BTreeMap::new();
    for folder in package_dirs(root)? {
        let manifest = read(&folder.join("Cargo.toml"))?;
        if let Some(name) = package_name(&manifest) {
            sources.insert(name.replace('-', "_"), folder.join("src"));
        }
    }
    Ok(sources)
}

/// The names of at least two parts.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    quoted(text)
        .filter(|words| words.starts_with(CRATE))
        .map(move |words| {
            words
                .split(|letter| !is_of_name(letter))
                .next()
                .unwrap_or(words)
        })
        .filter(|name| name.contains("::"))
}

fn exists(crates: &BTreeMap<String, PathBuf>, name: &str) -> bool {
    let mut parts = name.split("::");
    let sources = parts.next().and_then(|name| crates.get(name));
    let Some(mut module) = sources.cloned() else {
        return false;
    };
    for part in parts {
        let inner = module.join(part);
        if inner.join("mod.rs").is_file() || inner.with_extension("rs").is_file() {
            module = inner;
            continue;
        }
        let files = [
            module.with_extension("rs"),
            module.join("mod.rs"),
            module.join("lib.rs"),
        ];
        // An item of the item has no file to be looked for in.
        return files
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .any(|source| has_word(&source, part));
    }
    true
}

/// Returns true if the source has this word outside of comments.
fn has_word(source: &str, word: &str) -> bool {
    source
        .lines()
        .filter_map(|line| line.split("//").next())
        .flat_map(identifiers)
        .any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn names_have_two_parts_and_end_before_a_bracket() {
        let text = "`flannel_store::etcd` and `flannel_netlink::open(..)`, `flannel_store`, \
            flannel_x::y, `other::z`";
        let found: Vec<_> = names(text).collect();
        assert_eq!(found, ["flannel_store::etcd", "flannel_netlink::open"]);
    }

    #[test]
    fn a_name_is_a_module_or_an_item_of_one() {
        let workspace = Workspace::new().expect("the project");
        let crates = crate_sources(workspace.root()).expect("crates");
        for name in [
            "flannel_store::etcd",
            "flannel_store::etcd::EtcdManager",
            "flannel_store::etcd::lease::choose",
            "flannel_common::SCHEMA",
        ] {
            assert!(exists(&crates, name), "{name}");
        }
        for name in [
            "flannel_store::etcd::choose",
            "flannel_store::nothing",
            "flannel_nothing::store",
        ] {
            assert!(!exists(&crates, name), "{name}");
        }
    }
}
