//! Import circles between the top-level modules of a crate: folders and files directly below `src`.
//!
//! Modules may import each other in one direction only, so that a crate can be read, and split,
//! from the ground up. Tests (`#[cfg(test)]`, files and folders named `tests`) may import anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Context as _;

use super::sources::{product_lines, rust_files, split_comment};

/// The modules that each module imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the import circles of a crate, each as its modules.
pub(super) fn circles(src: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let mut imports = Imports::new();
    for (file, text) in rust_files(src)? {
        let below = file.strip_prefix(src).context("a file of the crate")?;
        let names: Vec<_> = below.iter().map(|name| name.to_string_lossy()).collect();
        if names
            .iter()
            .any(|name| *name == "tests" || *name == "tests.rs")
        {
            continue;
        }
        let module = names[0].trim_end_matches(".rs").to_owned();
        let imported = imported_modules(&text)
            .into_iter()
            .filter(|name| *name != module);
        imports.entry(module.clone()).or_default().extend(imported);
    }
    Ok(circles_of(&imports))
}

/// Returns the first segments of all paths that start with `crate::`.
fn imported_modules(text: &str) -> BTreeSet<String> {
    let code: Vec<_> = product_lines(text)
        .into_iter()
        .map(|(_, line)| split_comment(line).0)
        .collect();
    let code = code.join("\n");
    let mut modules = BTreeSet::new();
    for (at, start) in code.match_indices("crate::") {
        let is_word_before =
            code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        let path = &code[at + start.len()..];
        if is_word_before {
            continue;
        }
        match path.strip_prefix('{') {
            Some(tree) => modules.extend(branches(tree).into_iter().filter_map(first_segment)),
            None => modules.extend(first_segment(path)),
        }
    }
    modules
}

/// Splits the inside of a use tree, up to its closing brace, at its own commas.
fn branches(tree: &str) -> Vec<&str> {
    let (mut depth, mut start, mut branches) = (0, 0, Vec::new());
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                branches.push(&tree[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches
}

fn first_segment(path: &str) -> Option<String> {
    let path = path.trim_start();
    let end = path
        .find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(path.len());
    let segment = &path[..end];
    // Types and functions of the crate root are in no module.
    segment
        .starts_with(|first: char| first.is_ascii_lowercase())
        .then(|| segment.to_owned())
}

/// Returns the sets of modules that reach each other.
fn circles_of(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (module, reach(imports, module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let mut circle: Vec<_> = others
            .iter()
            .filter(|other| {
                reached
                    .get(other)
                    .is_some_and(|back| back.contains(*module))
            })
            .cloned()
            .collect();
        if !circle.is_empty() && others.contains(*module) {
            circle.sort();
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reach(imports: &Imports, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_trees_and_paths() {
        let text = "use crate::{a, b::{c, d}, e::F, Root};\nlet x = crate::g::h(); // \
            crate::i\nuse my_crate::j;\n\
                    #[cfg(test)]\nmod tests { use crate::k; }";
        assert_eq!(
            imported_modules(text).into_iter().collect::<Vec<_>>(),
            ["a", "b", "e", "g"]
        );
    }

    #[test]
    fn circles_are_the_modules_that_reach_each_other() {
        let imports = |pairs: &[(&str, &str)]| {
            let mut imports = Imports::new();
            for (from, to) in pairs {
                imports
                    .entry((*from).to_owned())
                    .or_default()
                    .insert((*to).to_owned());
                imports.entry((*to).to_owned()).or_default();
            }
            imports
        };
        assert!(circles_of(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        assert_eq!(
            circles_of(&imports(&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")])),
            [["b", "c"]]
        );
    }
}
