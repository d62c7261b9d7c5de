//! The archive that a kernel starts with: busybox, the modules by which it reaches the machine's
//! files, and two scripts.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    package::{Kernel, module_files},
    userland::Userland,
};
use crate::{files, setup::Setup, workspace};

const INIT: &str = include_str!("init.sh");

/// The modules, of which each brings its dependencies.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Makes it, with this script for these programs; its path.
pub(super) fn make(
    setup: &Setup<'_>,
    kernel: &Kernel,
    userland: &Userland,
    script: &str,
) -> anyhow::Result<PathBuf> {
    let workspace = setup.workspace();
    let tree = kernel.dir().join("start");
    files::remove(&tree)?;
    files::install(&userland.busybox, &tree.join("bin/busybox"), 0o755)?;
    files::write(&tree.join("init"), INIT)?;
    files::make_executable(&tree.join("init"))?;
    files::write(&tree.join("run.sh"), script)?;
    files::write(&tree.join("output.device"), kernel.architecture.output())?;
    let (modules_of, userland) = (canonical(&kernel.modules())?, canonical(&userland.root)?);
    let directories = [
        ("modules", &*modules_of),
        ("userland", &*userland),
        ("project", workspace.root()),
    ];
    for (name, path) in directories {
        files::write(
            &tree.join(name).with_extension("directory"),
            &path.display().to_string(),
        )?;
    }
    modules(setup, kernel, &tree.join("modules"))?;
    let archive = kernel.dir().join("start.cpio");
    let to =
        File::create(&archive).with_context(|| format!("cannot create {}", archive.display()))?;
    let mut pack = workspace.command("sh");
    pack.args(["-c", "find . | cpio --create --format=newc --quiet"])
        .current_dir(&tree)
        .stdout(to);
    workspace::run(&mut pack, "cpio")?;
    Ok(archive)
}

/// A path without links: where the first script looks, an absolute one leads into the archive.
fn canonical(path: &Path) -> anyhow::Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))
}

/// Copies the modules, unpacked, under names in the order of loading.
fn modules(setup: &Setup<'_>, kernel: &Kernel, into: &Path) -> anyhow::Result<()> {
    let mut all: Vec<PathBuf> = Vec::new();
    for name in MODULES {
        for file in module_files(setup, kernel, name)? {
            if !all.contains(&file) {
                all.push(file);
            }
        }
    }
    for (number, file) in all.iter().enumerate() {
        let name = file
            .file_name()
            .context("a module has a name")?
            .to_string_lossy();
        let to = into.join(format!("{number:02}-{}", name.trim_end_matches(".xz")));
        if name.ends_with(".xz") {
            files::make_parent(&to)?;
            let unpacked =
                File::create(&to).with_context(|| format!("cannot create {}", to.display()))?;
            let mut xz = setup.workspace().command("xz");
            workspace::run(
                xz.args(["--decompress", "--stdout"])
                    .arg(file)
                    .stdout(unpacked),
                "xz",
            )?;
        } else {
            files::install(file, &to, 0o644)?;
        }
    }
    Ok(())
}
