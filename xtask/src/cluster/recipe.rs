//! The keys of kept directories: digests of all that determines the content of their files.
//!
//! Checkouts with the same inputs share a directory, and a changed input leads to another one. The
//! programs take minutes and the images a minute, so each of them has a key.

use std::{env::consts::ARCH, path::Path};

use serde_json::{Map, Value};

use super::{RUNTIME, compile, source};
use crate::files;

/// The sources of the code that makes images: a change of this code can change an image.
const IMAGE_SOURCES: [(&str, &str); 3] = [
    ("cluster/images.rs", include_str!("images.rs")),
    ("image/layout.rs", include_str!("../image/layout.rs")),
    ("image/root.rs", include_str!("../image/root.rs")),
];

/// Named inputs of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recipe(Vec<(&'static str, String)>);

impl Recipe {
    /// The source of Kubernetes with the code that is generated in it, and the compiler.
    pub(super) fn source() -> Self {
        let [schema, fixtures] = compile::GENERATORS;
        Self(vec![
            ("version", source::VERSION.to_owned()),
            ("Go", compile::GO.join(" ")),
            ("schema", schema.join(" ")),
            ("packages with a schema", source::DESCRIBED.join(" ")),
            ("fixtures", fixtures.join(" ")),
            ("dns.go", digest(compile::DNS)),
        ])
    }

    /// All programs of nodes and of the tests of Kubernetes.
    pub(super) fn programs() -> Self {
        let Self(mut inputs) = Self::source();
        inputs.extend([
            ("architecture", ARCH.to_owned()),
            (
                "environment",
                compile::ENVIRONMENT
                    .map(|(name, value)| format!("{name}={value}"))
                    .join(" "),
            ),
            ("linker flags", compile::linker_flags()),
            (
                "targets",
                compile::targets(true)
                    .iter()
                    .fold(String::new(), |text, target| text + &target.input()),
            ),
            (
                "runtime",
                RUNTIME
                    .map(|(package, programs)| format!("{package}: {}", programs.join(" ")))
                    .join(", "),
            ),
        ]);
        Self(inputs)
    }

    /// All images, which contain programs.
    pub(super) fn images() -> Self {
        let sources = IMAGE_SOURCES.map(|(name, text)| (name, digest(text)));
        Self(
            [("programs", Self::programs().key())]
                .into_iter()
                .chain(sources)
                .collect(),
        )
    }

    /// The digest of all names and values.
    pub(super) fn key(&self) -> String {
        digest(&self.document().to_string())
    }

    /// Writes the inputs into a directory named by their key.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        files::write(
            &dir.join("recipe.json"),
            &format!("{:#}\n", self.document()),
        )
    }

    fn document(&self) -> Value {
        let inputs = self
            .0
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())));
        Value::Object(inputs.collect::<Map<_, _>>())
    }
}

/// FNV-1a with 64 bits, as 16 hexadecimal digits. Its inputs are not hostile.
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(recipe: &Recipe) -> BTreeSet<&'static str> {
        recipe.0.iter().map(|(name, _)| *name).collect()
    }

    fn value(recipe: &Recipe, name: &str) -> String {
        recipe
            .0
            .iter()
            .find(|(found, _)| *found == name)
            .expect(name)
            .1
            .clone()
    }

    #[test]
    fn digests_are_those_of_fnv() {
        assert_eq!(digest(""), "cbf29ce484222325");
        assert_eq!(digest("foobar"), "85944171f73967e8");
    }

    #[test]
    fn each_changed_input_changes_the_key() {
        for recipe in [Recipe::source(), Recipe::programs(), Recipe::images()] {
            let mut keys = BTreeSet::from([recipe.key()]);
            for index in 0..recipe.0.len() {
                let mut changed = recipe.clone();
                changed.0[index].1.push('x');
                assert!(keys.insert(changed.key()), "{}", recipe.0[index].0);
            }
            assert_eq!(recipe.clone().key(), recipe.key());
        }
    }

    #[test]
    fn text_that_moves_from_one_input_to_the_next_changes_the_key() {
        let recipe = |first: &str, second: &str| {
            Recipe(vec![("a", first.to_owned()), ("b", second.to_owned())])
        };
        assert_ne!(recipe("xy", "z").key(), recipe("x", "yz").key());
    }

    #[test]
    fn every_input_of_the_programs_is_in_their_recipe() {
        let recipe = Recipe::programs();
        let expected = [
            "version",
            "Go",
            "schema",
            "packages with a schema",
            "fixtures",
            "dns.go",
            "architecture",
            "environment",
            "linker flags",
            "targets",
            "runtime",
        ];
        assert_eq!(names(&recipe), expected.into());
        assert!(value(&recipe, "Go").contains("golang-1.19-go"));
        assert!(value(&recipe, "environment").contains("CGO_ENABLED=0"));
        assert!(value(&recipe, "linker flags").contains("gitCommit"));
        for part in ["./cmd/kubelet", "./test/e2e", "clusterdns"] {
            assert!(value(&recipe, "targets").contains(part), "{part}");
        }
        assert!(value(&recipe, "runtime").contains("usr/sbin/runc"));
    }

    #[test]
    fn a_changed_image_keeps_the_programs_and_changed_programs_change_the_images() {
        let images = Recipe::images();
        assert_eq!(value(&images, "programs"), Recipe::programs().key());
        assert!(
            !names(&Recipe::programs())
                .iter()
                .any(|name| names(&images).contains(name))
        );
    }
}
