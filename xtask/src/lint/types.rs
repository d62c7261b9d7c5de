//! Type names that are defined twice in one crate: a reader cannot know which is meant.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::sources::{product_lines, rust_files};

/// Names that a crate has more than once, each with the reason.
const ALLOWED: [(&str, &str, &str); 6] = [
    ("crates/store", "Holder", STORES),
    ("crates/store", "Liveness", STORES),
    ("crates/store", "Position", STORES),
    ("crates/store", "Problem", STORES),
    ("crates/node-commands", "SetOptions", VERBS),
    ("crates/node-commands", "ShowOptions", VERBS),
];
const STORES: &str = "etcd and Kubernetes have one each, with the same role";
const VERBS: &str = "the options of the verb of this name, for each command that has it";

const KINDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// Returns a line for each name that modules of the crate share, and for each allowed one that they
/// do not.
pub(super) fn findings(krate: &str, src: &Path) -> anyhow::Result<Vec<String>> {
    Ok(judge(krate, &rust_files(src)?))
}

fn judge(krate: &str, files: &[(PathBuf, String)]) -> Vec<String> {
    let mut defined = BTreeMap::<String, Vec<String>>::new();
    for (file, text) in files {
        if file
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            continue;
        }
        for name in product_lines(text)
            .into_iter()
            .filter_map(|(_, line)| visible_type(line))
        {
            defined
                .entry(name.to_owned())
                .or_default()
                .push(file.display().to_string());
        }
    }
    defined.retain(|_, files| files.len() > 1);
    let is_allowed = |name: &str| {
        ALLOWED
            .iter()
            .any(|(of, allowed, _)| *of == krate && *allowed == name)
    };
    let twice = defined.iter().filter(|(name, _)| !is_allowed(name));
    let twice =
        twice.map(|(name, files)| format!("{krate}: {name} is defined in {}", files.join(" and ")));
    let stale = ALLOWED
        .iter()
        .filter(|(of, name, _)| *of == krate && !defined.contains_key(*name));
    let stale = stale.map(|(_, name, reason)| {
        format!("{krate}: {name} is defined once, and allowed twice: {reason}")
    });
    twice.chain(stale).collect()
}

/// Returns the name of the type that a line defines, if other modules can see it.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = rest
        .strip_prefix('(')
        .map_or(Some(rest), |rest| Some(rest.split_once(')')?.1))?;
    let (kind, rest) = rest.trim_start().split_once(' ')?;
    let end = rest
        .find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(rest.len());
    KINDS.contains(&kind).then_some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_other_modules_see_are_found() {
        assert_eq!(visible_type("pub struct Peer<A> {"), Some("Peer"));
        assert_eq!(visible_type("pub(super) enum Way {"), Some("Way"));
        assert_eq!(visible_type("pub(in crate::a) type Map = u8;"), Some("Map"));
        for other in [
            "struct Own;",
            "pub fn struct_of() {",
            "    pub struct Inner;",
            "pub use a::B;",
        ] {
            assert_eq!(visible_type(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_in_two_files_is_reported_once() {
        let text = "pub struct Peer;\nstruct Own;\n";
        let files = ["a.rs", "b.rs", "tests.rs"].map(|name| (PathBuf::from(name), text.to_owned()));
        assert_eq!(
            judge("flannel-x", &files),
            ["flannel-x: Peer is defined in a.rs and b.rs"]
        );
        let stale = judge("crates/node-commands", &files[..1]);
        assert!(
            stale[0].starts_with("crates/node-commands: SetOptions is defined once"),
            "{stale:?}"
        );
    }
}
