//! Files that exist completely or not at all.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::Builder;

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// The action that failed, as it stands in the message: `create the directory`, `write`.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error the operating system returned.
    pub source: io::Error,
}

/// Replaces a file atomically, so that it survives a crash at any moment: old or new content, never
/// a mixture. A missing directory is created with mode 0755; neither mode depends on the umask.
/// Blocks on the disk.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> Result<(), FileError> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    create_dir(dir).map_err(failed("create the directory", dir))?;
    write_beside(dir, path, contents, mode).map_err(failed("write", path))?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync the directory", dir))
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Names what failed and where.
pub fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError {
        action,
        path,
        source,
    }
}

fn write_beside(dir: &Path, path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut file = Builder::new().prefix(".flannel.").tempfile_in(dir)?;
    file.write_all(contents)?;
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("run/flannel/file");
        replace(&path, b"first, and longer", 0o755).expect("first");
        replace(&path, b"second", 0o640).expect("second");
        let mode =
            |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o7777;
        let dir = path.parent().expect("a parent");
        assert_eq!((mode(&path), mode(dir)), (0o640, 0o755));
        assert_eq!(fs::read(&path).expect("the file"), b"second");
        assert_eq!(fs::read_dir(dir).expect("the directory").count(), 1);
    }

    #[test]
    fn a_failure_names_the_file() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("file");
        fs::write(&file, "").expect("a file");
        let error = replace(&file.join("below"), b"", 0o644).expect_err("a file is no directory");
        assert_eq!(error.path, file);
        assert!(
            error.to_string().starts_with("cannot create the directory"),
            "{error}"
        );
    }
}
