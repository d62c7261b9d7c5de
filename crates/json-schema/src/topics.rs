//! Lists of topics, compared with the sources that use them.

use std::{collections::BTreeSet, fs, path::PathBuf};

/// Describes topics: names that are written where a finding is made, below a folder, as the first
/// argument of the functions of a type; names that another crate gives follow. A test compares them
/// with the sources, and with that crate's.
#[macro_export]
macro_rules! topics {
    ($(#[$doc:meta])* $type:ident in $folder:literal of $made:literal: $($name:literal)+
        $(, of $others:path)?) => {
        $(#[$doc])*
        pub struct $type;

        impl $crate::schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::name([$($name),+])
            }
        }

        #[test]
        fn the_topics_are_those_of_the_sources() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $folder);
            let others: &[&[&str]] = &[$(&$others)?];
            $crate::topics::compare(folder, $made, &[$($name),+], &others.concat());
        }
    };
}

/// Compares a list of topics with the sources below a folder, and with those of another crate.
///
/// # Panics
/// They differ.
pub fn compare(folder: &str, made: &str, listed: &[&str], others: &[&str]) {
    let mut sources = String::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("topics.rs") && !path.ends_with("tests.rs") {
                sources += &fs::read_to_string(&path).expect("a source");
            }
        }
    }
    let made = format!("{made}::");
    let arguments = sources
        .split(&made)
        .skip(1)
        .filter_map(|call| Some(call.split_once('(')?.1));
    let literals =
        arguments.filter_map(|first| first.trim_start().strip_prefix('"')?.split('"').next());
    let given = literals.chain(others.iter().copied());
    let unlisted: BTreeSet<&str> = given.filter(|name| !listed.contains(name)).collect();
    assert!(unlisted.is_empty(), "the list lacks {unlisted:?}");
    let stale: Vec<_> = listed
        .iter()
        .filter(|name| !others.contains(name) && !sources.contains(&format!("\"{name}\"")))
        .collect();
    assert!(stale.is_empty(), "no source has {stale:?}");
}
