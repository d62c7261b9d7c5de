//! Direct dependencies of the packages: each is used, and there are not too many of them.
//!
//! Pure text, as cargo knows no more: a dependency counts as used if a path in the package's
//! sources begins with its name.

use std::path::Path;

use anyhow::Context as _;

use super::sources::{read, rust_files};
use crate::workspace::{package_dirs, package_name};

/// Direct dependencies of one package.
const MOST: usize = 25;
/// Packages that have more: the agent composes the others, the cloud's has the signatures of four
/// clouds, and the last one is for tests. The numbers may only fall.
const MORE: [(&str, usize); 3] = [("flannel-agent", 37), ("flannel-cloud", 27), (TESTS, 28)];
/// The package whose dependencies are for its tests: all of its folder counts.
const TESTS: &str = "flannel-tests";

/// Packages that do without another one: they serve whichever backend a node has.
const WALLS: [(&str, &str); 2] = [
    ("flannel-reconcile", "flannel-backends"),
    ("flannel-fast", "flannel-backends"),
];

/// Returns the faults of all manifests below this root, a line each.
pub(super) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in package_dirs(root)? {
        let manifest = read(&folder.join("Cargo.toml"))?;
        let package =
            package_name(&manifest).with_context(|| format!("{} has no name", folder.display()))?;
        let searched = if package == TESTS {
            folder.clone()
        } else {
            folder.join("src")
        };
        let mut sources: Vec<String> = rust_files(&searched)?
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        let script = folder.join("build.rs");
        if script.is_file() {
            sources.push(read(&script)?);
        }
        found.extend(judge(package, &dependencies(&manifest), &sources));
    }
    Ok(found)
}

/// The names in the section of dependencies, but for those that only a feature brings.
fn dependencies(manifest: &str) -> Vec<&str> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    section
        .filter(|line| !line.contains("optional = true"))
        .filter_map(|line| line.split_once(['.', ' ', '=']))
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

fn judge(package: &str, dependencies: &[&str], sources: &[String]) -> Vec<String> {
    let most = MORE
        .iter()
        .find(|(name, _)| *name == package)
        .map_or(MOST, |(_, most)| *most);
    let count = dependencies.len();
    let many = (count > most)
        .then(|| format!("{package} has {count} direct dependencies, {most} at most"));
    let is_unused = |name: &&&str| {
        !sources
            .iter()
            .any(|source| is_used(source, &name.replace('-', "_")))
    };
    let unused = dependencies
        .iter()
        .filter(is_unused)
        .map(|name| format!("{package} does not use {name}"));
    let forbidden = WALLS
        .iter()
        .filter(|(from, to)| *from == package && dependencies.contains(to))
        .map(|(_, to)| format!("{package} may not depend on {to}"));
    many.into_iter().chain(unused).chain(forbidden).collect()
}

/// Returns true if the name begins a path, or is imported.
fn is_used(source: &str, name: &str) -> bool {
    let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    source.match_indices(name).any(|(at, _)| {
        let (before, after) = (&source[..at], &source[at + name.len()..]);
        let begins = !before.ends_with(is_of_name) && !before.ends_with("::");
        begins
            && (after.starts_with("::")
                || (before.ends_with("use ") && !after.starts_with(is_of_name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_used_by_a_path_or_an_import() {
        for source in [
            "use base64::Engine;",
            "let x = base64::decode();",
            "use base64;",
            "#[base64::main]",
        ] {
            assert!(is_used(source, "base64"), "{source}");
        }
        for source in [
            "// base64 of a text",
            "use my_base64::x;",
            "use x::base64::y;",
            "base64_url::x()",
        ] {
            assert!(!is_used(source, "base64"), "{source}");
        }
    }

    #[test]
    fn only_dependencies_of_the_product_count() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\n# For tests.\nhttp-body = \
            { workspace = true }\n\
                        serde.workspace = true\nproptest = \
                        { workspace = true, optional = true }\n\n\
                        [dev-dependencies]\nrcgen = \"1\"\n";
        assert_eq!(
            (package_name(manifest), dependencies(manifest)),
            (Some("a"), vec!["http-body", "serde"])
        );
        let sources = ["use http_body::Frame;".to_owned()];
        assert_eq!(
            judge("a", &dependencies(manifest), &sources),
            ["a does not use serde"]
        );
    }

    #[test]
    fn a_package_may_be_forbidden_to_have_another() {
        let used = ["use flannel_backends::of;".to_owned()];
        let judged = |package| judge(package, &["flannel-backends"], &used);
        assert_eq!(
            judged("flannel-reconcile"),
            ["flannel-reconcile may not depend on flannel-backends"]
        );
        assert_eq!(judged("flannel-agent"), [""; 0]);
    }

    #[test]
    fn there_is_a_bound() {
        let names: Vec<String> = (0..=MOST).map(|number| format!("d{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let used: Vec<String> = names.iter().map(|name| format!("use {name}::x;")).collect();
        assert_eq!(
            judge("a", &names, &used),
            ["a has 26 direct dependencies, 25 at most"]
        );
        assert_eq!(judge("a", &names[1..], &used), [""; 0]);
    }
}
