//! The BPF toolchain made from Debian's packages, below `target/bpf-toolchain/`.
//!
//! Debian builds a rustc (`rustc-web`) that carries `core` compiled for the BPF targets, so neither
//! nightly nor `-Z build-std` is needed. Its packages conflict with Debian's other rustc and with
//! rustup, so they are unpacked, not installed; rustc finds its own sysroot relative to the library
//! it was loaded from. Only its LLVM library is installed: that package is co-installable by
//! version and apt knows what it depends on in turn. The LLVM development packages are not needed,
//! because bpf-linker needs only the shared library.
//!
//! ```text
//! target/bpf-toolchain/sysroot/usr/...                      rustc, rustdoc, clippy, core for BPF
//! target/bpf-toolchain/bpf-linker-<version>-llvm<major>/    bin/bpf-linker
//! ```

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{
    apt::{Apt, package_file, remove_dir},
    linker,
    steps::Steps,
};
use crate::workspace::{BPF_TARGET, Workspace};

/// Packages with fixed names; two more have their version in the name and are found as
/// dependencies.
const PACKAGES: [&str; 4] = [
    "rustc-web",
    "libstd-rust-web-dev",
    "libstd-rust-web-dev-bpf",
    "rust-web-clippy",
];

/// A toolchain whose compiler and linker were run and answered.
#[derive(Clone, Debug)]
pub(crate) struct Unpacked {
    compiler: Compiler,
    linker: PathBuf,
}

/// The unpacked rustc, which was run and answered.
#[derive(Clone, Debug)]
pub(super) struct Compiler {
    bin: PathBuf,
    /// The directory of rustc's own shared library, which no loader searches by itself.
    libraries: PathBuf,
    release: String,
    /// LLVM's major version, which bpf-linker's must equal to read what this rustc writes.
    pub(super) llvm_major: u32,
}

/// The reason why an unpacked toolchain cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The directory everything here lies in.
pub(super) fn dir(workspace: &Workspace) -> PathBuf {
    workspace.target().join("bpf-toolchain")
}

impl Unpacked {
    /// Runs the compiler and the linker where they should be.
    pub(super) fn find(workspace: &Workspace) -> Result<Self, Missing> {
        let compiler = Compiler::find(workspace)?;
        let linker = linker::find(workspace, compiler.llvm_major).ok_or_else(|| {
            Missing(format!(
                "no bpf-linker for LLVM {} yet",
                compiler.llvm_major
            ))
        })?;
        Ok(Self { compiler, linker })
    }

    /// bpf-linker, absolute.
    pub(super) fn linker(&self) -> &Path {
        &self.linker
    }

    /// Returns the path of a program in rustc's directory.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.compiler.bin.join(name)
    }

    /// The directory of the standard library for a target.
    pub(super) fn library(&self, triple: &str) -> PathBuf {
        self.compiler
            .bin
            .with_file_name("lib")
            .join("rustlib")
            .join(triple)
    }

    /// Lets a command, and what it starts in turn, use this compiler.
    pub(super) fn apply_compiler(&self, command: &mut Command) {
        command
            .env("RUSTC", self.program("rustc"))
            .env("RUSTDOC", self.program("rustdoc"))
            .env("LD_LIBRARY_PATH", &self.compiler.libraries);
    }

    /// The same, for the BPF programs: aya-ebpf enables `asm_experimental_arch`, and Debian's rustc
    /// is a stable one.
    pub(super) fn apply(&self, command: &mut Command) {
        self.apply_compiler(command);
        command.env("RUSTC_BOOTSTRAP", "1");
    }
}

impl fmt::Display for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiler {
            release,
            llvm_major,
            ..
        } = &self.compiler;
        write!(
            f,
            "Debian's rustc {release} (LLVM {llvm_major}) and bpf-linker {}",
            linker::VERSION
        )
    }
}

impl Compiler {
    fn find(workspace: &Workspace) -> Result<Self, Missing> {
        let sysroot = dir(workspace).join("sysroot/usr");
        let bin = sysroot.join("bin");
        let libraries = library_dir(&sysroot.join("lib"))
            .ok_or_else(|| Missing("no rustc for BPF yet".to_owned()))?;
        for needed in [
            bin.join("clippy-driver"),
            bin.join("rustdoc"),
            sysroot.join("lib/rustlib").join(BPF_TARGET),
        ] {
            if !needed.exists() {
                return Err(Missing(format!("{} is missing", needed.display())));
            }
        }
        let output = Command::new(bin.join("rustc"))
            .arg("-vV")
            .env("LD_LIBRARY_PATH", &libraries)
            .output();
        let text = output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        let (release, llvm_major) = parse_version(&text)
            .ok_or_else(|| Missing("the unpacked rustc does not start".to_owned()))?;
        Ok(Self {
            bin,
            libraries,
            release,
            llvm_major,
        })
    }

    /// The system's copy of the LLVM library this rustc uses. The directories of the machine's
    /// architecture have the same name in the unpacked tree and in the system.
    pub(super) fn llvm_library(&self) -> anyhow::Result<PathBuf> {
        let system = Path::new("/usr/lib").join(self.libraries.file_name().unwrap_or_default());
        let start = format!("libLLVM.so.{}.", self.llvm_major);
        find_entry(&system, &start).with_context(|| format!("no {start}* in {}", system.display()))
    }
}

/// Fetches, unpacks and builds what is missing.
pub(super) fn make(workspace: &Workspace, apt: &Apt<'_>) -> anyhow::Result<Unpacked> {
    let have_compiler = Compiler::find(workspace).is_ok();
    let mut steps = Steps::new("BPF toolchain", if have_compiler { 1 } else { 3 });
    if !have_compiler {
        let debs = dir(workspace).join("debs");
        steps.run("fetch rustc and core for BPF, about 90 MB", || {
            fetch(apt, &debs)
        })?;
        steps.run(
            "unpack them, and install the LLVM library rustc loads",
            || unpack(workspace, apt, &debs),
        )?;
    }
    let compiler = Compiler::find(workspace)
        .map_err(|Missing(what)| anyhow::anyhow!("{what} after unpacking"))?;
    let what = format!(
        "build bpf-linker {} for LLVM {}, about a minute",
        linker::VERSION,
        compiler.llvm_major
    );
    let linker = steps.run(&what, || linker::build(workspace, &compiler))?;
    Ok(Unpacked { compiler, linker })
}

fn fetch(apt: &Apt<'_>, debs: &Path) -> anyhow::Result<()> {
    if debs.exists() {
        remove_dir(debs)?;
    }
    apt.fetch(&PACKAGES, debs)?;
    let library = apt.dependency(
        &package_file(debs, "libstd-rust-web-dev")?,
        "libstd-rust-web-",
    )?;
    apt.fetch(&[&library], debs)
}

/// Unpacks next to the final place and renames, so that an interrupted run leaves no directory that
/// looks complete.
fn unpack(workspace: &Workspace, apt: &Apt<'_>, debs: &Path) -> anyhow::Result<()> {
    let sysroot = dir(workspace).join("sysroot");
    let partial = dir(workspace).join("sysroot.partial");
    for stale in [&sysroot, &partial] {
        if stale.exists() {
            remove_dir(stale)?;
        }
    }
    let library = apt.dependency(
        &package_file(debs, "libstd-rust-web-dev")?,
        "libstd-rust-web-",
    )?;
    let library = package_file(debs, &library)?;
    apt.install(&[&apt.dependency(&library, "libllvm")?])?;
    for entry in fs::read_dir(debs).with_context(|| format!("cannot read {}", debs.display()))? {
        apt.extract(&entry.context("cannot list the packages")?.path(), &partial)?;
    }
    fs::rename(&partial, &sysroot)
        .with_context(|| format!("cannot rename {}", partial.display()))?;
    remove_dir(debs)
}

/// The directory below `lib` that has rustc's shared library: named after the architecture.
fn library_dir(lib: &Path) -> Option<PathBuf> {
    let mut dirs = fs::read_dir(lib)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    dirs.find(|dir| find_entry(dir, "librustc_driver-").is_some())
}

fn find_entry(dir: &Path, start: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).ok()?.filter_map(Result::ok);
    entries
        .find(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
}

/// Release and LLVM major from `rustc -vV`.
fn parse_version(text: &str) -> Option<(String, u32)> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let llvm = field("LLVM version:")?.split('.').next()?.parse().ok()?;
    Some((field("release:")?.to_owned(), llvm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_major_comes_from_rustc() {
        let text = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nrelease: 1.96.0\nLLVM \
            version: 22.1.8\n";
        assert_eq!(parse_version(text), Some(("1.96.0".to_owned(), 22)));
        assert_eq!(parse_version(""), None);
    }
}
