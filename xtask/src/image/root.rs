//! A root file system of Debian's packages, unpacked and not installed: their scripts do not run.
//! This module takes the steps of the scripts that the image needs.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};

use crate::{
    files,
    workspace::{self, Workspace},
};

/// Directories of a merged `/usr`, which the package usrmerge makes.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Names that update-alternatives gives; rules go to nf_tables unless a host has those of the
/// legacy variant, which the agent looks up itself.
const IPTABLES: [&str; 6] = [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];
/// Of no use in a container. Licences stay (`usr/share/doc/*/copyright`).
const UNUSED: [&str; 12] = [
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/debconf",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl5",
    "usr/share/tabset",
    "usr/lib/systemd",
    "var/cache",
    "var/lib/dpkg",
];

/// Makes it of package files.
pub(crate) fn make(workspace: &Workspace, packages: &[PathBuf], root: &Path) -> anyhow::Result<()> {
    for name in MERGED {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(format!("usr/{name}"), root.join(name))
            .with_context(|| format!("cannot link {name}"))?;
    }
    for package in packages {
        unpack(workspace, package, root)?;
    }
    for path in UNUSED {
        files::remove(&root.join(path))?;
    }
    keep_licences(&root.join("usr/share/doc"))?;
    // Character sets.
    remove_directories(&root.join("usr/lib"), "gconv")?;
    link_iptables(root)?;
    accounts(root)?;
    certificates(root)
}

/// By tar and not by `dpkg-deb --extract`, which puts directories in place of links to them.
fn unpack(workspace: &Workspace, package: &Path, root: &Path) -> anyhow::Result<()> {
    let mut contents = workspace
        .command("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = contents.stdout.take().context("a pipe")?;
    let mut tar = workspace.command("tar");
    tar.args([
        "--extract",
        "--keep-directory-symlink",
        "--same-owner",
        "--directory",
    ])
    .arg(root)
    .stdin(output);
    workspace::run(&mut tar, "tar")?;
    ensure!(
        contents.wait()?.success(),
        "dpkg-deb cannot read {}",
        package.display()
    );
    Ok(())
}

/// Writes the descriptions of the packages of which something is left, where scanners of images
/// look for them. Removes the licences of the others.
pub(crate) fn record(
    workspace: &Workspace,
    packages: &[PathBuf],
    root: &Path,
) -> anyhow::Result<()> {
    for package in packages {
        let fields = workspace::output(workspace.command("dpkg-deb").arg("--field").arg(package))?;
        let name = fields
            .lines()
            .find_map(|line| line.strip_prefix("Package: "))
            .context("a package without a name")?;
        if is_left(workspace, package, root)? {
            files::write(&root.join("var/lib/dpkg/status.d").join(name), &fields)?;
        } else {
            files::remove(&root.join("usr/share/doc").join(name))?;
        }
    }
    Ok(())
}

/// Returns true if a file of the package is in `root`, its documentation left out.
fn is_left(workspace: &Workspace, package: &Path, root: &Path) -> anyhow::Result<bool> {
    let contents = workspace::output(workspace.command("dpkg-deb").arg("--contents").arg(package))?;
    Ok(contents
        .lines()
        .filter(|line| !line.starts_with('d'))
        .filter_map(contained)
        .filter(|path| !path.starts_with("usr/share/doc/"))
        .any(|path| root.join(path).symlink_metadata().is_ok()))
}

/// The path in a line of `dpkg-deb --contents`: mode, owner, size, day, time, path and, for a link,
/// an arrow and what it leads to.
fn contained(line: &str) -> Option<&str> {
    let (_, path) = line.split_once(" ./")?;
    Some(path.split_once(" -> ").map_or(path, |(path, _)| path))
}

/// Removes every directory of that name.
pub(super) fn remove_directories(below: &Path, name: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(below)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if entry.file_name() == name {
                files::remove(&entry.path())?;
            } else {
                remove_directories(&entry.path(), name)?;
            }
        }
    }
    Ok(())
}

fn keep_licences(docs: &Path) -> anyhow::Result<()> {
    for package in fs::read_dir(docs).with_context(|| format!("cannot read {}", docs.display()))? {
        let package = package?;
        if !package.file_type()?.is_dir() {
            continue;
        }
        for entry in fs::read_dir(package.path())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name == "copyright") {
                continue;
            }
            files::remove(&path)?;
        }
    }
    Ok(())
}

/// Gives the programs of iptables their usual names.
pub(crate) fn link_iptables(root: &Path) -> anyhow::Result<()> {
    for name in IPTABLES {
        let to = name.replace("tables", "tables-nft");
        symlink(to, root.join("usr/sbin").join(name))
            .with_context(|| format!("cannot link {name}"))?;
    }
    Ok(())
}

/// Writes the users and groups of every system.
pub(crate) fn accounts(root: &Path) -> anyhow::Result<()> {
    for name in ["passwd", "group"] {
        let master = root.join(format!("usr/share/base-passwd/{name}.master"));
        files::install(&master, &root.join("etc").join(name), 0o644)?;
    }
    Ok(())
}

/// One file of all authorities, as update-ca-certificates makes it.
fn certificates(root: &Path) -> anyhow::Result<()> {
    let dir = root.join("usr/share/ca-certificates/mozilla");
    let mut files: Vec<PathBuf> = fs::read_dir(&dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    files.sort();
    let texts: Vec<String> = files
        .iter()
        .map(fs::read_to_string)
        .collect::<Result<_, _>>()?;
    ensure!(
        texts.len() > 50,
        "{} has {} authorities",
        dir.display(),
        texts.len()
    );
    files::write(
        &root.join("etc/ssl/certs/ca-certificates.crt"),
        &texts.concat(),
    )
}
