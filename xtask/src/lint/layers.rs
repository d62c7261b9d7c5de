//! Import circles between the files of a crate.
//!
//! Files may import each other in one direction only, so that a crate can be read, and split, from
//! the ground up. A file imports the one that defines an item which its product code names; a
//! re-export is followed to there, and is not an import itself. Tests (`#[cfg(test)]`, files and
//! folders named `tests` or `testing`) may import anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::sources::product_code;

/// The path of a module, or of an item, from the crate's root.
type Names = Vec<String>;
/// The files that each file imports, as modules.
type Imports = BTreeMap<Names, BTreeSet<Names>>;

/// One file, as a module.
#[derive(Debug, Default)]
struct Source {
    /// The items that it uses.
    used: BTreeSet<Names>,
    /// The names that `use` gives to items of other modules.
    given: BTreeMap<String, Names>,
}

/// Returns the import circles of a crate's files, each as its modules.
pub(super) fn circles(src: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    Ok(circles_of(&imports(&texts(src)?)))
}

/// Returns the import circles of the folders and files directly below `src`. Names that the crate's
/// root has from them are not followed.
pub(super) fn circles_of_folders(src: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let mut texts = texts(src)?;
    texts.remove(&Names::new());
    Ok(circles_of(&by_folder(&imports(&texts))))
}

fn texts(src: &Path) -> anyhow::Result<BTreeMap<Names, String>> {
    let files = product_code(src)?.into_iter();
    // The place where an item can be seen is not an import.
    let shown = files.map(|(file, code)| (file, code.replace("(in crate::", "(in_crate::")));
    Ok(shown
        .filter_map(|(file, code)| Some((module_of(&file)?, code)))
        .collect())
}

/// The imports of the folders directly below the root.
fn by_folder(imports: &Imports) -> Imports {
    let folder = |module: &Names| module[..1].to_vec();
    let mut folders = Imports::new();
    for (module, others) in imports {
        let own = folder(module);
        let others = others.iter().map(folder).filter(|other| *other != own);
        folders.entry(own.clone()).or_default().extend(others);
    }
    folders
}

/// The module of a file; none for the binary of a library.
fn module_of(below: &Path) -> Option<Names> {
    let mut names: Names = below
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names == ["main"] {
        return None;
    }
    names.pop_if(|last| last == "mod" || last == "lib");
    Some(names)
}

fn imports(texts: &BTreeMap<Names, String>) -> Imports {
    let is_module = |names: &[String]| texts.contains_key(names);
    let sources: BTreeMap<&Names, Source> = texts
        .iter()
        .map(|(module, text)| (module, source(module, text, &is_module)))
        .collect();
    sources
        .iter()
        .map(|(module, source)| {
            let origins = source.used.iter().filter_map(|path| origin(&sources, path));
            let others = origins.filter(|origin| origin != *module);
            ((*module).clone(), others.collect())
        })
        .collect()
}

/// Reads a file: its `use` trees, and the paths in the rest of it.
fn source(module: &Names, text: &str, is_module: &dyn Fn(&[String]) -> bool) -> Source {
    let mut source = Source::default();
    let (trees, rest) = use_trees(text);
    for (is_shown, tree) in trees {
        for (path, name) in leaves(&tree) {
            let Some(path) = absolute(module, &path, is_module) else {
                continue;
            };
            if !is_shown {
                source.used.insert(path.clone());
            }
            source.given.insert(name, path);
        }
    }
    let used = paths(&rest).filter_map(|path| absolute(module, &path, is_module));
    source.used.extend(used);
    source
}

/// The module that defines an item.
fn origin(sources: &BTreeMap<&Names, Source>, path: &[String]) -> Option<Names> {
    let (mut path, mut seen) = (path.to_vec(), BTreeSet::new());
    loop {
        let length = (0..=path.len())
            .rev()
            .find(|length| sources.contains_key(&path[..*length].to_vec()))?;
        let (module, rest) = path.split_at(length);
        let given = rest
            .first()
            .and_then(|name| sources[&module.to_vec()].given.get(name));
        match given {
            Some(given) if seen.insert(path.clone()) => {
                path = [given.as_slice(), &rest[1..]].concat();
            }
            _ => return Some(module.to_vec()),
        }
    }
}

/// The path from the crate's root; none for the paths of other crates.
fn absolute(
    module: &Names,
    path: &[String],
    is_module: &dyn Fn(&[String]) -> bool,
) -> Option<Names> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let more = rest.iter().take_while(|name| *name == "super").count();
            let base = module.len().checked_sub(1 + more)?;
            Some([&module[..base], &rest[more..]].concat())
        }
        _ => {
            let below = [module, path].concat();
            is_module(&below[..=module.len()]).then_some(below)
        }
    }
}

/// Splits code into its `use` trees, true with those that are shown to others, and the rest.
fn use_trees(text: &str) -> (Vec<(bool, String)>, String) {
    let (mut trees, mut rest, mut lines) = (Vec::new(), String::new(), text.lines());
    while let Some(line) = lines.next() {
        let Some((before, first)) = line.split_once("use ") else {
            rest += line;
            rest.push('\n');
            continue;
        };
        let before = before.trim();
        if !before.is_empty() && !before.starts_with("pub") {
            rest += line;
            rest.push('\n');
            continue;
        }
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            let Some(line) = lines.next() else { break };
            tree += line;
        }
        trees.push((!before.is_empty(), tree.replace(';', "")));
    }
    (trees, rest)
}

/// The items of a `use` tree, each with the name that it gets.
fn leaves(tree: &str) -> Vec<(Names, String)> {
    let tree = tree.trim();
    let (path, group) = match tree.split_once('{') {
        Some((path, group)) => (path, Some(group)),
        None => (tree, None),
    };
    let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
    let mut names: Names = path
        .split("::")
        .map(str::trim)
        .filter(|name| !name.is_empty() && *name != "*")
        .map(str::to_owned)
        .collect();
    if let Some(group) = group {
        let below = branches(group).into_iter().flat_map(leaves);
        return below
            .map(|(path, name)| ([names.as_slice(), &path].concat(), name))
            .map(|(path, name)| without_self(path, name))
            .collect();
    }
    let last = names.last().cloned().unwrap_or_default();
    let name = if alias.is_empty() {
        &last
    } else {
        alias.trim()
    };
    let name = name.to_owned();
    names.retain(|name| !name.is_empty());
    vec![(names, name)]
}

/// `a::{self}` is `a`.
fn without_self(mut path: Names, mut name: String) -> (Names, String) {
    if path.len() > 1 && path.pop_if(|last| last == "self").is_some() && name == "self" {
        name = path.last().cloned().unwrap_or_default();
    }
    (path, name)
}

/// The paths of several names in code.
fn paths(code: &str) -> impl Iterator<Item = Names> {
    let is_part = |character: char| character.is_alphanumeric() || "_:$".contains(character);
    code.split(move |character| !is_part(character))
        .map(|path| {
            path.trim_matches(':')
                .split("::")
                .map(str::to_owned)
                .collect()
        })
        .filter(|names: &Names| names.len() > 1)
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
    branches.retain(|branch| !branch.trim().is_empty());
    branches
}

/// Returns the sets of modules that reach each other.
fn circles_of(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (module, reach(imports, module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let back = |other: &&Names| {
            reached
                .get(other)
                .is_some_and(|back| back.contains(*module))
        };
        let circle: Vec<_> = others.iter().filter(back).map(shown).collect();
        if !circle.is_empty() && others.contains(*module) {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn shown(module: &Names) -> String {
    if module.is_empty() {
        "lib".to_owned()
    } else {
        module.join("::")
    }
}

fn reach(imports: &Imports, from: &Names) -> BTreeSet<Names> {
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
    use super::{super::sources::code, *};

    fn names(path: &str) -> Names {
        path.split("::")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The circles of files, each with its module and its text.
    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let texts = files
            .iter()
            .map(|(module, text)| (names(module), code(text)))
            .collect();
        circles_of(&imports(&texts))
    }

    #[test]
    fn a_circle_is_found_by_imports_and_by_paths() {
        let a = ("a", "use crate::{b::{C, d as e}, f};");
        assert!(found(&[("", "mod a;"), a, ("b", "fn g() {}")]).is_empty());
        assert_eq!(
            found(&[("", ""), a, ("b", "fn g() { crate::a::h(); }")]),
            [["a", "b"]]
        );
        assert_eq!(
            found(&[("", ""), a, ("b", "use super::a::H;")]),
            [["a", "b"]]
        );
    }

    #[test]
    fn a_file_and_its_parent_are_a_circle_if_each_uses_the_other() {
        let parent = ("a", "mod b;\npub struct S;\nfn f() { b::g(); }");
        assert!(found(&[("", ""), parent, ("a::b", "fn g() {}")]).is_empty());
        assert_eq!(
            found(&[("", ""), parent, ("a::b", "use super::S;")]),
            [["a", "a::b"]]
        );
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_item() {
        let parent = ("a", "mod b;\nmod c;\npub use self::c::S;\nuse b::g;");
        let child = (
            "a::b",
            "use super::S;\n#[cfg(test)]\nmod tests { use super::super::T; }",
        );
        assert!(found(&[("", ""), parent, child, ("a::c", "pub struct S;")]).is_empty());
    }

    #[test]
    fn tests_and_the_paths_of_other_crates_do_not_count() {
        assert_eq!(module_of(Path::new("main.rs")), None);
        assert_eq!(module_of(Path::new("a/mod.rs")), Some(names("a")));
        assert_eq!(module_of(Path::new("lib.rs")), Some(names("")));
        let other = ("a", "use flannel_b::x;\n// crate::b\nuse std::b;");
        assert!(found(&[("", ""), other, ("b", "use crate::a;")]).is_empty());
    }

    #[test]
    fn folders_import_each_other_by_any_of_their_files() {
        let pairs = [("a::x", "b::y"), ("b::z", "a"), ("a::x", "a::w")];
        let mut imports = Imports::new();
        for (from, to) in pairs {
            imports.entry(names(from)).or_default().insert(names(to));
        }
        assert_eq!(circles_of(&by_folder(&imports)), [["a", "b"]]);
    }
}
