//! `flannel-agent install`: puts a file where others look for it, such as the CNI plugin and its
//! configuration on the host.
//!
//! The two arguments and the result are those of the `install-conf` in flannel's image; ours takes
//! programs as well. What depends on the plugins of the host is decided here, on the node: a
//! configuration that names a plugin without its file keeps every pod from starting.

mod list;

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use flannel_host::file::{self, FileError};

use self::list::{Adapted, adapt};

/// The plugins that flannel's configuration needs in addition to flannel's own, and `bandwidth`.
const STANDARD: [&str; 5] = ["bandwidth", "bridge", "host-local", "loopback", "portmap"];

/// The file to install, and its destination.
#[derive(Debug, Args)]
pub struct InstallOptions {
    /// Copy the standard CNI plugins from this directory next to the destination, where they are
    /// absent: bandwidth, bridge, host-local, loopback, portmap
    #[arg(
        long,
        value_name = "DIRECTORY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/usr/lib/cni",
        value_hint = ValueHint::DirPath
    )]
    cni_plugins: Option<PathBuf>,
    /// Append the plugin bandwidth to the CNI configuration list that is installed, if this
    /// directory has it
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    bandwidth_from: Option<PathBuf>,
    /// The file to copy
    source: PathBuf,
    /// The file to make or replace, with the permissions of the first
    destination: PathBuf,
}

/// Runs the command. It prints what was decided on the way; nothing for a plain copy.
pub fn run(options: &InstallOptions) -> Result<String, FileError> {
    let InstallOptions {
        cni_plugins,
        bandwidth_from,
        source,
        destination,
    } = options;
    let (mut contents, mode) = read(source).map_err(file::failed("read", source))?;
    let mut remarks = Vec::new();
    if let Some(plugins) = bandwidth_from {
        let is_there = |name: &str| is_program(&plugins.join(name));
        let Adapted {
            text,
            remarks: of_list,
        } = adapt(&String::from_utf8_lossy(&contents), is_there);
        (contents, remarks) = (text.into_bytes(), of_list);
    }
    file::replace(destination, &contents, mode)?;
    if let Some(plugins) = cni_plugins {
        let into = destination.parent().unwrap_or(Path::new("."));
        for name in STANDARD {
            remarks.push(copy_absent(&plugins.join(name), &into.join(name))?);
        }
    }
    Ok(remarks.into_iter().map(|remark| remark + "\n").collect())
}

/// Copies a program unless there is one, of whatever version, and says so.
fn copy_absent(source: &Path, destination: &Path) -> Result<String, FileError> {
    if destination.symlink_metadata().is_ok() {
        return Ok(format!("{} is there, and stays", destination.display()));
    }
    let (contents, mode) = read(source).map_err(file::failed("read", source))?;
    file::replace(destination, &contents, mode)?;
    Ok(format!("installed {}", destination.display()))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// A file's contents and permissions.
fn read(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    Ok((
        fs::read(path)?,
        fs::metadata(path)?.permissions().mode() & 0o777,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(source: &Path, destination: &Path) -> InstallOptions {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        InstallOptions {
            cni_plugins: None,
            bandwidth_from: None,
            source,
            destination,
        }
    }

    fn program(path: &Path, contents: &str) {
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, contents).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    #[test]
    fn standard_plugins_are_copied_where_they_are_absent_and_never_replaced() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [image, host] = ["image", "host"].map(|name| scratch.path().join(name));
        for name in STANDARD {
            program(&image.join(name), "of the image");
        }
        program(&image.join("flannel"), "ours");
        program(&host.join("portmap"), "of the host");
        let options = InstallOptions {
            cni_plugins: Some(image.clone()),
            ..plain(&image.join("flannel"), &host.join("flannel"))
        };
        let printed = run(&options).expect("installed");
        assert_eq!(
            (
                printed.matches("installed ").count(),
                printed.matches("portmap is there, and stays").count()
            ),
            (4, 1)
        );
        let there = |name: &str| fs::read_to_string(host.join(name)).expect("there");
        assert_eq!(
            (there("flannel"), there("portmap"), there("bridge")),
            ("ours".into(), "of the host".into(), "of the image".into())
        );
        assert!(is_program(&host.join("bandwidth")));
        assert_eq!(
            run(&options).expect("again").matches("and stays").count(),
            5
        );
    }

    #[test]
    fn bandwidth_is_in_the_installed_list_where_the_directory_has_the_program() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [source, destination] =
            ["cni-conf.json", "10-flannel.conflist"].map(|name| scratch.path().join(name));
        let bin = scratch.path().join("bin");
        program(&bin.join("flannel"), "");
        fs::write(&source, r#"{"plugins":[{"type":"flannel"}]}"#).expect("written");
        let options = InstallOptions {
            bandwidth_from: Some(bin.clone()),
            ..plain(&source, &destination)
        };
        let installed = || {
            let printed = run(&options).expect("installed");
            (
                fs::read_to_string(&destination)
                    .expect("there")
                    .contains("bandwidth"),
                printed,
            )
        };
        assert!(!installed().0);
        fs::write(bin.join("bandwidth"), "no program").expect("written");
        assert!(!installed().0);
        program(&bin.join("bandwidth"), "");
        let (has, printed) = installed();
        assert!(
            has && printed == "the plugin bandwidth is installed: added to the list\n",
            "{printed}"
        );
    }

    #[test]
    fn a_file_is_copied_with_its_permissions_over_what_is_there() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [source, destination] =
            ["flannel", "opt/cni/bin/flannel"].map(|name| scratch.path().join(name));
        let options = plain(&source, &destination);
        for (contents, mode) in [("first, and longer", 0o700), ("second", 0o755)] {
            fs::write(&source, contents).expect("written");
            fs::set_permissions(&source, fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(run(&options).expect("installed"), "");
            assert_eq!(fs::read_to_string(&destination).expect("there"), contents);
            assert_eq!(
                fs::metadata(&destination)
                    .expect("metadata")
                    .permissions()
                    .mode()
                    & 0o7777,
                mode
            );
        }
        fs::remove_file(&source).expect("removed");
        assert!(
            run(&options)
                .expect_err("nothing to copy")
                .to_string()
                .starts_with("cannot read ")
        );
    }
}
