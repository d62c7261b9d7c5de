//! The inputs from which others are made, in memory and on disk.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

/// The inputs of one target.
#[derive(Debug)]
pub(crate) struct Corpus {
    directory: PathBuf,
    inputs: Vec<Vec<u8>>,
    /// True if new inputs are written to the directory.
    is_kept: bool,
}

impl Corpus {
    /// The seeds, and the inputs that earlier runs kept.
    pub(crate) fn load(directory: PathBuf, seeds: &[&[u8]], is_kept: bool) -> Self {
        let mut inputs: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
        if is_kept {
            let files = fs::read_dir(directory.join("corpus"))
                .into_iter()
                .flatten()
                .flatten();
            inputs.extend(files.filter_map(|file| fs::read(file.path()).ok()));
        }
        if inputs.is_empty() {
            inputs.push(Vec::new());
        }
        Self {
            directory,
            inputs,
            is_kept,
        }
    }

    pub(crate) fn inputs(&self) -> &[Vec<u8>] {
        &self.inputs
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds an input that reached new code.
    pub(crate) fn add(&mut self, input: Vec<u8>) {
        if self.inputs.contains(&input) {
            return;
        }
        if self.is_kept {
            write(&self.directory.join("corpus"), "", &input);
        }
        self.inputs.push(input);
    }

    /// Keeps an input that failed, and returns its file.
    pub(crate) fn keep_failure(&self, input: &[u8]) -> PathBuf {
        write(&self.directory, "failed-", input)
    }
}

/// Writes an input to a file that is named by its content.
pub(crate) fn write(directory: &Path, prefix: &str, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = directory.join(format!("{prefix}{:016x}", hasher.finish()));
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, input));
    if let Err(error) = written {
        eprintln!(
            "fuzz: cannot write {}: {error}; the input is {input:02x?}",
            path.display()
        );
    }
    path
}
