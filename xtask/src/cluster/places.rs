//! The directories of the parts of the cluster.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{cache, source};
use crate::workspace::Workspace;

/// Counts the changes of the recipe: another one does not take what an older one made.
const RECIPE: u32 = 1;

/// The directories.
#[derive(Clone, Debug)]
pub(super) struct Places {
    kept: PathBuf,
    work: PathBuf,
}

impl Places {
    /// Makes none of them.
    pub(super) fn new(workspace: &Workspace) -> anyhow::Result<Self> {
        let kept = cache()?.join(format!("kubernetes-{}-{RECIPE}", source::VERSION));
        Ok(Self { kept, work: workspace.target().join("kubernetes") })
    }

    /// The directory of what is kept: `bin/` and `images/`.
    pub(super) fn kept(&self) -> &Path {
        &self.kept
    }

    /// A program that is kept, by its name.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.kept.join("bin").join(name)
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
}

/// Makes a directory with those above it.
pub(super) fn make(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}
