//! `flannel-agent install`: puts a file where others look for it, such as the CNI plugin and its
//! configuration on the host.
//!
//! The two arguments and the result are those of the `install-conf` in flannel's image; ours takes
//! programs as well.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use flannel_host::file::{self, FileError};

/// The file to install, and its destination.
#[derive(Debug, Args)]
pub struct InstallOptions {
    /// The file to copy
    source: PathBuf,
    /// The file to make or replace, with the permissions of the first
    destination: PathBuf,
}

/// Runs the command. It prints nothing.
pub(super) fn run(options: &InstallOptions) -> Result<String, FileError> {
    let (contents, mode) = read(&options.source).map_err(file::failed("read", &options.source))?;
    file::replace(&options.destination, &contents, mode)?;
    Ok(String::new())
}

/// A file's contents and permissions.
fn read(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    Ok((fs::read(path)?, fs::metadata(path)?.permissions().mode() & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_copied_with_its_permissions_over_what_is_there() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [source, destination] = ["flannel", "opt/cni/bin/flannel"].map(|name| scratch.path().join(name));
        let options = InstallOptions { source: source.clone(), destination: destination.clone() };
        for (contents, mode) in [("first, and longer", 0o700), ("second", 0o755)] {
            fs::write(&source, contents).expect("written");
            fs::set_permissions(&source, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(run(&options).expect("installed"), "");
            assert_eq!(fs::read_to_string(&destination).expect("there"), contents);
            assert_eq!(fs::metadata(&destination).expect("metadata").permissions().mode() & 0o7777, mode);
        }
        fs::remove_file(&source).expect("removed");
        assert!(run(&options).expect_err("nothing to copy").to_string().starts_with("cannot read "));
    }
}
