//! The toolchain that compiles the BPF programs, and the cargo command that uses it.
//!
//! Two kinds do: the one made from Debian's packages ([`Unpacked`]), and a rustup nightly with
//! `rust-src` and a bpf-linker in `PATH`, which compiles `core` itself. The first is preferred
//! because it is what CI uses.

use std::{ffi::OsString, fmt, path::Path, process::Command};

use super::unpacked::{Missing, Unpacked};
use crate::workspace::Workspace;

/// A usable toolchain for the BPF targets.
#[derive(Clone, Debug)]
pub(crate) enum Toolchain {
    /// Debian's, below `target/`.
    Unpacked(Unpacked),
    /// The user's nightly.
    Nightly,
}

impl Toolchain {
    /// A cargo for the BPF object: `build`, `doc` or `clippy`. The caller adds package and target.
    pub(crate) fn cargo(&self, workspace: &Workspace, verb: &str) -> Command {
        let mut command = match self {
            Self::Unpacked(unpacked) => unpacked_cargo(workspace, unpacked, verb),
            Self::Nightly => nightly_cargo(workspace, verb),
        };
        command.env("CARGO_TARGET_DIR", workspace.bpf_target());
        command.env("CARGO_ENCODED_RUSTFLAGS", self.flags(workspace));
        command
    }

    /// Returns the flags in the form that outranks every other source of flags, so that the object
    /// does not depend on a user's settings. Paths are mapped, so that its debug information names
    /// no directory of this machine.
    fn flags(&self, workspace: &Workspace) -> OsString {
        // LLVM 22 and newer. Where the programs run a load needs no alignment, and without this
        // LLVM takes headers apart, byte by byte.
        let features = "-Clink-arg=--cpu-features=+allows-misaligned-mem-access";
        let mut flags = OsString::from(format!("-Clink-arg=--btf\x1f{features}\x1f-Clinker="));
        match self {
            Self::Unpacked(unpacked) => flags.push(unpacked.linker()),
            Self::Nightly => flags.push("bpf-linker"),
        }
        for map in workspace.path_maps() {
            flags.push("\x1f");
            flags.push(map);
        }
        flags
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpacked(unpacked) => unpacked.fmt(f),
            Self::Nightly => {
                f.write_str("the rustup nightly, -Z build-std, and the bpf-linker in PATH")
            }
        }
    }
}

/// Returns the cargo command for `verb` with the unpacked toolchain. Debian's cargo-clippy finds
/// the clippy-driver in its own directory and calls the cargo that `CARGO` names.
fn unpacked_cargo(workspace: &Workspace, unpacked: &Unpacked, verb: &str) -> Command {
    let mut command = workspace.cargo();
    if verb == "clippy" {
        let cargo = command.get_program().to_owned();
        command = workspace.command(unpacked.program("cargo-clippy"));
        command.env("CARGO", cargo);
    }
    unpacked.apply(&mut command);
    command.arg(verb);
    command
}

fn nightly_cargo(workspace: &Workspace, verb: &str) -> Command {
    let mut command = workspace.command("rustup");
    command.args(["run", "nightly", "cargo", verb, "-Zbuild-std=core"]);
    command
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Returns true if there is a rustup nightly with the source of `core`, and a bpf-linker.
pub(super) fn nightly_is_usable(workspace: &Workspace) -> bool {
    let asked = || {
        let mut command = workspace.command("rustup");
        let output = command
            .args(["run", "nightly", "rustc", "--print=sysroot"])
            .output()
            .ok()?;
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output
            .status
            .success()
            .then(|| Path::new(&sysroot).join("lib/rustlib/src/rust/library/core"))
    };
    workspace.find_command("bpf-linker").is_some() && asked().is_some_and(|core| core.is_dir())
}

/// Returns the message for a machine where a toolchain can be neither found nor made, with the
/// remedy.
pub(super) fn explain(missing: &Missing, obstacle: &str) -> String {
    format!(
        "there is no toolchain for the BPF programs ({missing}), and none is made here because \
         {obstacle}.\n\
         On Debian or Ubuntu run, as root: cargo xtask setup\n\
         Elsewhere: rustup toolchain install nightly --component rust-src, and cargo install \
         bpf-linker with the \
         feature of that nightly's LLVM (rustc +nightly -vV).\n\
         To build the agent without its BPF programs: cargo xtask build --no-bpf"
    )
}
