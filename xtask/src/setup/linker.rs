//! bpf-linker: built from source against the LLVM library of the rustc whose bitcode it reads.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::{
    apt::remove_dir,
    unpacked::{self, Compiler},
};
use crate::workspace::{self, Workspace};

/// The version that is built; its lock file makes the build repeatable.
pub(super) const VERSION: &str = "0.13.0";

/// The LLVM majors this version has bindings for.
const LLVM_MAJORS: [u32; 3] = [21, 22, 23];

/// The linker for this LLVM, if it is there, starts and is the right version.
pub(super) fn find(workspace: &Workspace, llvm_major: u32) -> Option<PathBuf> {
    let program = root(workspace, llvm_major).join("bin/bpf-linker");
    let output = workspace.command(&program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text.trim() == format!("bpf-linker {VERSION}")).then_some(program)
}

/// Builds and installs it below the toolchain's directory.
pub(super) fn build(workspace: &Workspace, compiler: &Compiler) -> anyhow::Result<PathBuf> {
    let major = compiler.llvm_major;
    ensure!(
        LLVM_MAJORS.contains(&major),
        "bpf-linker {VERSION} supports LLVM {LLVM_MAJORS:?}, but this rustc has LLVM {major}: \
         raise the version in xtask/src/setup/linker.rs"
    );
    let root = root(workspace, major);
    link_llvm(&compiler.llvm_library()?, &root.join("llvm/lib"))?;
    let objects = root.join("build");
    let mut cargo = workspace.cargo();
    cargo
        .args([
            "install",
            "bpf-linker",
            "--locked",
            "--force",
            "--no-default-features",
            "--version",
            VERSION,
        ])
        .args(["--features", &format!("llvm-{major}")])
        .arg("--root")
        .arg(&root)
        .env("CARGO_TARGET_DIR", &objects)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        // It is built in a third of the time, and links as fast: its work is LLVM's.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("LLVM_PREFIX", root.join("llvm"));
    workspace::run(&mut cargo, "bpf-linker's build")?;
    remove_dir(&objects)?;
    find(workspace, major)
        .with_context(|| format!("bpf-linker in {} does not start", root.display()))
}

/// The major is part of the path: after an update of rustc a linker for another LLVM does not
/// count.
fn root(workspace: &Workspace, llvm_major: u32) -> PathBuf {
    unpacked::dir(workspace).join(format!("bpf-linker-{VERSION}-llvm{llvm_major}"))
}

/// Gives the library the name a linker looks for (`-lLLVM`). That link is all bpf-linker would want
/// of the development package, which brings 600 MB with it.
fn link_llvm(library: &Path, dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let link = dir.join("libLLVM.so");
    if link.is_symlink() {
        fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    symlink(library, &link).with_context(|| format!("cannot create {}", link.display()))
}
