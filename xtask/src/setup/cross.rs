//! Compiles for arm64 on another machine: the compiler of the BPF toolchain with the standard
//! library of Debian's package for arm64, and Debian's cross linker and C library. What was
//! compiled is started once, under emulation.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use super::{Needs, Setup, apt, toolchain::Toolchain, unpacked::Unpacked};
use crate::workspace::{self, Workspace};

/// A toolchain for arm64.
#[derive(Clone, Debug)]
pub(crate) struct Cross {
    compiler: Unpacked,
    emulator: PathBuf,
    target: PathBuf,
}

impl Cross {
    /// As Debian and the OCI image specification call it.
    pub(crate) const ARCHITECTURE: &'static str = "arm64";
    /// As rustc calls it.
    pub(crate) const TRIPLE: &'static str = "aarch64-unknown-linux-gnu";
    /// As binutils and the C compiler call it.
    const PREFIX: &'static str = "aarch64-linux-gnu-";

    /// Finds it, or makes it.
    pub(crate) fn ensure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let Toolchain::Unpacked(compiler) = setup.bpf()? else {
            bail!(
                "to compile for {} takes the BPF toolchain of Debian's packages, not a nightly",
                Self::ARCHITECTURE
            );
        };
        setup.machine(Needs::CROSS)?;
        let workspace = setup.workspace();
        let library = compiler.library(Self::TRIPLE);
        if !library.is_dir() {
            standard_library(setup, &compiler, &library)?;
        }
        let emulator = workspace.find_command("qemu-aarch64-static").context(
            "qemu-aarch64-static is not in PATH: install qemu-user-static, or run without \
                --skip-setup",
        )?;
        Ok(Self {
            compiler,
            emulator,
            target: workspace.target().join(Self::ARCHITECTURE),
        })
    }

    /// Lets cargo compile for this architecture, in a separate target directory.
    pub(crate) fn apply(&self, cargo: &mut Command) {
        let compiler = format!("{}gcc", Self::PREFIX);
        self.compiler.apply_compiler(cargo);
        cargo
            .args(["--target", Self::TRIPLE])
            .env("CARGO_TARGET_DIR", &self.target);
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", &compiler);
        cargo.env("CC_aarch64_unknown_linux_gnu", &compiler);
    }

    /// The directory in which cargo puts the programs of a profile.
    pub(crate) fn programs(&self, profile: &str) -> PathBuf {
        self.target.join(Self::TRIPLE).join(profile)
    }

    /// The program that removes symbols from one of these.
    pub(crate) fn strip() -> String {
        format!("{}strip", Self::PREFIX)
    }

    /// Starts a program of this architecture, which is to say its version.
    pub(crate) fn try_out(&self, workspace: &Workspace, program: &Path) -> anyhow::Result<()> {
        let mut emulator = workspace.command(&self.emulator);
        emulator
            .args(["-L", "/usr/aarch64-linux-gnu"])
            .arg(program)
            .arg("--version");
        // A CNI plugin says it on standard error.
        let output = emulator.output().context("cannot start the emulator")?;
        let version =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        let is_right = output.status.success() && version.contains(env!("CARGO_PKG_VERSION"));
        let status = output.status;
        ensure!(
            is_right,
            "{} does not start under qemu-aarch64-static ({status}): {version}",
            program.display()
        );
        println!(
            "build: {} starts under emulation: {}",
            program.display(),
            version.lines().next().unwrap_or_default()
        );
        Ok(())
    }
}

/// Of the same version as the compiler: both are of one source package.
fn standard_library(setup: &Setup<'_>, compiler: &Unpacked, library: &Path) -> anyhow::Result<()> {
    let fetched = setup
        .workspace()
        .target()
        .join("bpf-toolchain")
        .join(Cross::ARCHITECTURE);
    println!(
        "set-up: the standard library for {}, about 35 MB",
        Cross::ARCHITECTURE
    );
    let packages = setup.foreign(
        Cross::ARCHITECTURE,
        &["libstd-rust-web-dev"],
        &fetched.join("debs"),
    )?;
    for package in packages {
        setup.extract(&package, &fetched)?;
    }
    let unpacked = fetched.join("usr/lib/rustlib").join(Cross::TRIPLE);
    fs::rename(&unpacked, library)
        .with_context(|| format!("cannot rename {}", unpacked.display()))?;
    apt::remove_dir(&fetched)?;
    let mut rustc = setup.workspace().command(compiler.program("rustc"));
    compiler.apply_compiler(&mut rustc);
    let sysroot =
        workspace::output(rustc.args(["--print=target-libdir", "--target", Cross::TRIPLE]))?;
    ensure!(
        Path::new(sysroot.trim()).is_dir(),
        "rustc looks for the standard library in {}",
        sysroot.trim()
    );
    Ok(())
}
