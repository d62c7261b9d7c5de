//! The directories of the parts of the cluster, in the user's cache.
//!
//! ```text
//!   kubernetes-1.20.2-<key>/             what a cluster takes: bin (a link) and images
//!   kubernetes-1.20.2-programs-<key>/    bin
//!   kubernetes-build/                    source, compiler and Go's cache, which may be removed
//!   kubernetes.lock                      held by the checkout that builds
//! ```

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{progress, recipe::Recipe, source};
use crate::workspace::Workspace;

/// Parts of the build directory that depend on the source and on the compiler. Go's cache is not
/// one: its entries are named by their content.
const OF_THE_SOURCE: [&str; 3] = ["go", "golang", "tools"];
/// The file with the key of those parts.
const SOURCE_KEY: &str = "source.key";

/// The directories.
#[derive(Clone, Debug)]
pub(super) struct Places {
    cache: PathBuf,
    programs: PathBuf,
    kept: PathBuf,
    work: PathBuf,
    /// The build directory of checkouts from before it was shared.
    own_work: PathBuf,
}

impl Places {
    /// Makes none of them.
    pub(super) fn new(workspace: &Workspace) -> anyhow::Result<Self> {
        Ok(Self::in_cache(cache()?, workspace.target()))
    }

    /// The directories below a cache, of the checkout with this target directory.
    pub(super) fn in_cache(cache: PathBuf, target: &Path) -> Self {
        let named = |recipe: &Recipe, kind: &str| {
            cache.join(format!(
                "kubernetes-{}-{kind}{}",
                source::VERSION,
                recipe.key()
            ))
        };
        Self {
            programs: named(&Recipe::programs(), "programs-"),
            kept: named(&Recipe::images(), ""),
            work: cache.join("kubernetes-build"),
            own_work: target.join("kubernetes"),
            cache,
        }
    }

    /// The directory of what a cluster takes: `bin` and `images`.
    pub(super) fn kept(&self) -> &Path {
        &self.kept
    }

    /// The file whose lock a build holds.
    pub(super) fn lock(&self) -> PathBuf {
        self.cache.join("kubernetes.lock")
    }

    /// A program that is kept, by its name.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join("bin").join(name)
    }

    /// A program that is kept, by its path in the package it is from.
    pub(super) fn program_of(&self, path: &str) -> PathBuf {
        self.program(path.rsplit('/').next().unwrap_or(path))
    }

    /// An image that is kept.
    pub(super) fn image(&self, name: &str) -> PathBuf {
        self.kept.join("images").join(format!("{name}.tar"))
    }

    /// A directory of what can go once all is made.
    pub(super) fn work(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// The source of Kubernetes, where Go looks for it.
    pub(super) fn source(&self) -> PathBuf {
        self.work("go").join("src/k8s.io/kubernetes")
    }

    /// Returns true if the programs are found next to the images.
    pub(super) fn are_linked(&self) -> bool {
        self.kept.join("bin").is_dir()
    }

    /// Links the programs next to the images, and writes the inputs of both into their directories.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        Recipe::programs().write(&self.programs)?;
        Recipe::images().write(&self.kept)?;
        if self.are_linked() {
            return Ok(());
        }
        let link = self.kept.join("bin");
        let programs = Path::new("..")
            .join(self.programs.file_name().unwrap_or_default())
            .join("bin");
        symlink(programs, &link).with_context(|| format!("cannot link {}", link.display()))
    }

    /// Removes the source and the compiler of another recipe from the build directory.
    pub(super) fn remove_other_source(&self) -> anyhow::Result<()> {
        let (file, key) = (self.work(SOURCE_KEY), Recipe::source().key());
        if fs::read_to_string(&file).is_ok_and(|found| found == key) {
            return Ok(());
        }
        OF_THE_SOURCE
            .iter()
            .try_for_each(|name| source::remove(&self.work(name)))?;
        make(&self.work)?;
        fs::write(&file, key).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Lines about the directories of other recipes, with their sizes and how to remove them.
    pub(super) fn other_directories(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.cache) else {
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .collect();
        found.retain(|path| self.is_of_another_recipe(path));
        found.extend(self.own_work.is_dir().then(|| self.own_work.clone()));
        found.sort();
        found.iter().map(|dir| other_directory(dir)).collect()
    }

    fn is_of_another_recipe(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own = [&self.programs, &self.kept, &self.work];
        name.starts_with("kubernetes-") && path.is_dir() && own.iter().all(|own| *own != path)
    }
}

fn other_directory(dir: &Path) -> String {
    let megabytes = progress::size(dir) / progress::MEGABYTE;
    let dir = dir.display();
    format!(
        "cluster: this checkout does not use {dir}, {megabytes} MB; if no other does: rm -r {dir}"
    )
}

/// The user's directory of caches.
fn cache() -> anyhow::Result<PathBuf> {
    let named = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    named("FLANNEL_CLUSTER_CACHE")
        .or_else(|| Some(named("XDG_CACHE_HOME")?.join("flannel-agent")))
        .or_else(|| Some(named("HOME")?.join(".cache/flannel-agent")))
        .context("there is no place for a cache: set FLANNEL_CLUSTER_CACHE to a directory")
}

/// Makes a directory with those above it.
pub(super) fn make(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `test` with places in an empty cache.
    fn with_places(name: &str, test: impl FnOnce(&Places)) {
        let dir = env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        make(&dir.join("cache")).expect("a cache");
        test(&Places::in_cache(dir.join("cache"), &dir.join("target")));
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn programs_are_found_next_to_the_images() {
        with_places("links", |places| {
            make(&places.program("kubelet")).expect("a program's place");
            assert!(!places.are_linked());
            for _ in 0..2 {
                places.finish().expect("a link");
                assert!(places.kept().join("bin/kubelet").exists());
            }
            assert!(places.kept().join("recipe.json").is_file());
        });
    }

    #[test]
    fn directories_of_other_recipes_are_named_with_their_sizes() {
        with_places("others", |places| {
            places.finish().expect("a kept directory");
            make(&places.work("go")).expect("a build directory");
            assert_eq!(places.other_directories(), Vec::<String>::new());
            let old = places.cache.join("kubernetes-1.20.2-1");
            make(&old).expect("a directory");
            fs::write(old.join("kubelet"), vec![0; 3_000_000]).expect("a file");
            make(&places.own_work).expect("a directory");
            let lines = places.other_directories();
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(
                lines[0].contains(&format!("{}, 3 MB; ", old.display())),
                "{lines:?}"
            );
            assert!(lines[1].ends_with("target/kubernetes"), "{lines:?}");
        });
    }

    #[test]
    fn a_source_of_another_recipe_is_removed_and_gos_cache_stays() {
        with_places("source", |places| {
            let [source, cache] = [places.source(), places.work("cache")];
            for dir in [&source, &cache] {
                make(dir).expect("a directory");
            }
            places.remove_other_source().expect("removed");
            assert!(!source.exists() && cache.exists());
            make(&source).expect("a directory");
            places.remove_other_source().expect("as it was");
            assert!(source.exists());
        });
    }
}
