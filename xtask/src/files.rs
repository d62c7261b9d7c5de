//! Files of what is shipped: copied and written with the modes they have there.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::Context as _;

use crate::{
    build::Built,
    workspace::{self, Workspace},
};

/// Copies a program of a build as [`install`] does, and strips the copy.
pub(crate) fn install_program(
    workspace: &Workspace,
    built: &Built,
    name: &str,
    to: &Path,
) -> anyhow::Result<()> {
    install(&built.program(name), to, 0o755)?;
    workspace::run(workspace.command(built.strip()).arg(to), built.strip())
}

/// Copies a file, and creates the directories of its target. An interruption leaves no partial file
/// under its name: some targets are kept, and an existing file counts as whole.
pub(crate) fn install(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    make_parent(to)?;
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    fs::copy(from, &partial).with_context(failed)?;
    set_mode(Path::new(&partial), mode)?;
    fs::rename(&partial, to).with_context(failed)
}

/// Writes a file for all to read.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    set_mode(path, 0o644)
}

/// Removes a file, a link or a directory, if it is there.
pub(crate) fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// Lets all run a file.
pub(crate) fn make_executable(path: &Path) -> anyhow::Result<()> {
    set_mode(path, 0o755)
}

/// Makes the directory in which a file will lie.
pub(crate) fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().context("a file lies in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}

/// Makes a directory for all to write to, such as `/tmp`.
pub(crate) fn make_open(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    set_mode(dir, 0o1777)
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot chmod {}", path.display()))
}
