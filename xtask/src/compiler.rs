//! The compiler of this project's crates for `test --clippy`: clippy compiles, and rustdoc reads
//! the same sources. Both check what the tests run, and the libraries are compiled once.
//!
//! cargo starts this program in place of rustc (`RUSTC_WORKSPACE_WRAPPER`), with the path of rustc
//! and its arguments.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, ensure};

/// Names the program of clippy. Where it is set, this program is the compiler.
const CLIPPY: &str = "XTASK_CLIPPY_DRIVER";
/// Names the directory of the documentation.
const DOCUMENTATION: &str = "XTASK_DOCUMENTATION";
/// The crate of this program. It is compiled for tests only.
const THIS_CRATE: &str = "xtask";

/// This program as a compiler.
#[derive(Clone, Debug)]
pub(crate) struct CheckingCompiler {
    program: PathBuf,
    clippy: PathBuf,
}

impl CheckingCompiler {
    /// # Errors
    /// The toolchain has no clippy.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let clippy = cargo.with_file_name("clippy-driver");
        ensure!(
            clippy.is_file(),
            "{} is not there: rustup component add clippy",
            clippy.display()
        );
        let program = env::current_exe().context("cannot find this program")?;
        Ok(Self { program, clippy })
    }

    /// Makes cargo compile this project's crates with it. Their documentation goes below `target`.
    pub(crate) fn apply(&self, cargo: &mut Command, target: &Path) {
        cargo
            .env("RUSTC_WORKSPACE_WRAPPER", &self.program)
            .env(CLIPPY, &self.clippy)
            .env(DOCUMENTATION, target.join("xtask/doc"));
    }
}

/// Compiles, if this process was started for it.
pub(crate) fn run() -> Option<anyhow::Result<ExitCode>> {
    let clippy = PathBuf::from(env::var_os(CLIPPY)?);
    Some(compile(&clippy).map(|is_clean| {
        if is_clean {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }))
}

/// Returns false if clippy or rustdoc failed, which has said why.
fn compile(clippy: &Path) -> anyhow::Result<bool> {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    if !succeeds(Command::new(clippy).args(&args))? {
        return Ok(false);
    }
    // The first is rustc.
    let Some(args) = args.get(1..).and_then(documentation) else {
        return Ok(true);
    };
    let directory =
        env::var_os(DOCUMENTATION).with_context(|| format!("{DOCUMENTATION} is not set"))?;
    let mut rustdoc = Command::new(clippy.with_file_name("rustdoc"));
    rustdoc
        .args(args)
        .arg("--document-private-items")
        .arg("--out-dir")
        .arg(directory);
    succeeds(&mut rustdoc)
}

fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(
        status.code().is_some(),
        "{} ended with {status}",
        command.get_program().display()
    );
    Ok(status.success())
}

/// Returns rustdoc's arguments for what rustc compiled with `args`; `None` for a test, a build
/// script, and questions about the compiler.
fn documentation(args: &[OsString]) -> Option<Vec<OsString>> {
    let name = value_of(args, "--crate-name")?;
    let is_this = name == THIS_CRATE;
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    if has("--test") != is_this || name == "build_script_build" || name == "___" {
        return None;
    }
    let mut kept = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let text = arg.to_string_lossy();
        if ["-C", "--out-dir", "--emit"].contains(&text.as_ref()) {
            rest.next();
        } else if !["--test", "-C", "--emit=", "--diagnostic-width="]
            .iter()
            .any(|start| text.starts_with(start))
        {
            kept.push(arg.clone());
        }
    }
    Some(kept)
}

/// The argument after `flag`.
fn value_of<'a>(args: &'a [OsString], flag: &str) -> Option<&'a OsStr> {
    let mut args = args.iter();
    args.find(|arg| *arg == flag)?;
    args.next().map(OsString::as_os_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documented(text: &str) -> Option<String> {
        let args: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let args = documentation(&args)?;
        Some(args.join(OsStr::new(" ")).into_string().expect("a text"))
    }

    #[test]
    fn rustdoc_reads_what_has_documentation() {
        assert_eq!(
            documented(
                "--crate-name flannel_store --edition=2024 crates/store/src/lib.rs --crate-type \
                 lib --emit=dep-info,metadata,link -C embed-bitcode=no --cfg feature=\"x\" -C \
                 metadata=1 --out-dir deps -L dependency=deps --extern serde=deps/libserde.rmeta"
            )
            .as_deref(),
            Some(
                "--crate-name flannel_store --edition=2024 crates/store/src/lib.rs --crate-type \
                 lib --cfg feature=\"x\" -L dependency=deps --extern serde=deps/libserde.rmeta"
            )
        );
        for other in [
            "--crate-name flannel_store src/lib.rs --test",
            "--crate-name build_script_build build.rs --crate-type bin",
            "--crate-name ___ - --print=file-names",
            "-vV",
        ] {
            assert_eq!(documented(other), None, "{other}");
        }
        assert!(documented("--crate-name xtask src/main.rs --test").is_some());
    }
}
