//! The programs and images of the cluster, as `cargo xtask cluster` makes them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The places of both.
#[derive(Clone, Debug)]
pub struct Parts {
    made: PathBuf,
    image: PathBuf,
}

impl Parts {
    /// Those of `FLANNEL_KUBERNETES` (a directory) and `FLANNEL_IMAGE` (the archive of our image).
    ///
    /// # Errors
    /// The reason, which completes a sentence after `NOT RUN:`, if a variable is not set.
    pub fn find() -> Result<Self, String> {
        let named = |name: &str, what: &str| {
            env::var_os(name)
                .map(PathBuf::from)
                .ok_or_else(|| format!("{name} does not name {what}"))
        };
        Ok(Self {
            made: named("FLANNEL_KUBERNETES", "what `cargo xtask cluster` makes")?,
            image: named("FLANNEL_IMAGE", "an archive of `cargo xtask image`")?,
        })
    }

    /// The directory of the programs.
    pub fn bin(&self) -> PathBuf {
        self.made.join("bin")
    }

    /// A program, by its name.
    pub fn program(&self, name: &str) -> String {
        self.bin().join(name).display().to_string()
    }

    /// Our image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// All images that a node may need: our own, and those made for the cluster.
    pub(super) fn images(&self) -> Result<Vec<PathBuf>> {
        let dir = self.made.join("images");
        let entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let mut images = vec![self.image.clone()];
        for entry in entries {
            images.push(entry?.path());
        }
        Ok(images)
    }
}
