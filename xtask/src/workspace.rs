//! The directories of the project, and the start of other programs.
//!
//! Every child process is made here, so that all of them get the same directory, search path and
//! (cargo) a clean environment. Leaves what to run, and in which order, to the verbs.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::compiler::CheckingCompiler;

/// The BPF target with this machine's byte order: programs are loaded on the kind of machine they
/// are built on.
pub(crate) const BPF_TARGET: &str = if cfg!(target_endian = "little") {
    "bpfel-unknown-none"
} else {
    "bpfeb-unknown-none"
};

/// The checked-out project.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    /// Compiles this project's crates for tests, in place of rustc.
    compiler: Option<CheckingCompiler>,
}

impl Workspace {
    /// Finds the project this program was built from.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in the project's directory")?;
        ensure!(
            root.join("Cargo.lock").exists(),
            "{} is gone: run `cargo xtask` from the project it belongs to",
            root.display()
        );
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self {
            root: root.to_owned(),
            target,
            compiler: None,
        })
    }

    /// The same, for a run in which clippy compiles this project's crates for tests: lints and
    /// tests share one compilation.
    ///
    /// # Errors
    /// The toolchain has no clippy.
    pub(crate) fn with_clippy(&self) -> anyhow::Result<Self> {
        Ok(Self {
            compiler: Some(CheckingCompiler::new()?),
            ..self.clone()
        })
    }

    /// Returns true if clippy compiles this project's crates for tests.
    pub(crate) const fn has_clippy(&self) -> bool {
        self.compiler.is_some()
    }

    /// Returns flags of rustc that map the directories of the project and of the crates, so that a
    /// program names no directory of this machine.
    pub(crate) fn path_maps(&self) -> Vec<OsString> {
        let of_home = || {
            Some(
                Path::new(&env::var_os("HOME")?)
                    .join(".cargo")
                    .into_os_string(),
            )
        };
        let cargo_home = env::var_os("CARGO_HOME").or_else(of_home);
        let map = |(path, name): (Option<OsString>, &str)| {
            let mut flag = OsString::from("--remap-path-prefix=");
            flag.push(path?);
            flag.push(format!("={name}"));
            Some(flag)
        };
        [
            (Some(self.root.as_os_str().to_owned()), "/flannel"),
            (cargo_home, "/cargo"),
        ]
        .into_iter()
        .filter_map(map)
        .collect()
    }

    /// The directory with the workspace's `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory; all that xtask makes lies below it too.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the target directory of the BPF object, apart from the host's: it has another
    /// compiler.
    pub(crate) fn bpf_target(&self) -> PathBuf {
        self.target().join("bpf")
    }

    /// Returns the directory of the unpacked tools, which must not be installed on the machine.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// Creates (once) and names xtask's own directory for logs.
    pub(crate) fn logs(&self) -> anyhow::Result<PathBuf> {
        let dir = self.target.join("xtask");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(dir)
    }

    /// A command in the project's directory, without standard input, that finds administrator's
    /// commands and the unpacked tools whatever the caller's `PATH` is.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .env("PATH", self.search_path());
        command
    }

    /// The cargo that runs us. Variables that describe xtask's own package are taken out: build
    /// scripts watch them, and a dependency would be built again after each plain `cargo build` in
    /// between.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = self.command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// The same for what tests run. Cargo calls clippy as it calls rustc, only for the crates of
    /// this project; what it makes runs as what rustc makes, but for optimisations of the MIR.
    pub(crate) fn cargo_for_tests(&self) -> Command {
        let mut command = self.cargo();
        if let Some(compiler) = &self.compiler {
            compiler.apply(&mut command, self.target());
        }
        command
    }

    /// The same, with subcommands from this directory.
    pub(crate) fn cargo_with(&self, subcommands: &Path) -> Command {
        let mut command = self.cargo();
        let mut path = subcommands.as_os_str().to_owned();
        path.push(":");
        path.push(self.search_path());
        command.env("PATH", path);
        command
    }

    /// Returns this machine's architecture, as Debian and the OCI image specification call it.
    pub(crate) fn architecture(&self) -> anyhow::Result<String> {
        Ok(output(self.command("dpkg").arg("--print-architecture"))?
            .trim()
            .to_owned())
    }

    /// Returns the path of a command, if there is one in the search path.
    pub(crate) fn find_command(&self, name: &str) -> Option<PathBuf> {
        env::split_paths(&self.search_path())
            .map(|dir| dir.join(name))
            .find(|path| path.is_file())
    }

    fn search_path(&self) -> OsString {
        let given = env::var_os("PATH").unwrap_or_default();
        let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let dirs = env::split_paths(&given)
            .chain(more)
            .chain([self.tools().join("usr/bin")]);
        env::join_paths(dirs).unwrap_or(given)
    }
}

/// Returns true if we are root, which network namespaces, BPF and package installation all require.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `--locked` in CI, where a lock file that does not fit is a fault; nothing on a developer's
/// machine.
pub(crate) fn locked() -> &'static [&'static str] {
    if env::var_os("CI").is_some() {
        &["--locked"]
    } else {
        &[]
    }
}

/// Runs a command whose output goes to the terminal.
///
/// # Errors
/// It could not be started, or it failed; `what` names it in the message.
pub(crate) fn run(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {what} ({command:?})"))?;
    ensure!(
        status.success(),
        "{what} failed ({status}); its own messages are above"
    );
    Ok(())
}

/// Runs a command; what it prints.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", name.display()))?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        name.display(),
        output.status,
        messages.trim_end()
    );
    Ok(String::from_utf8(output.stdout)?)
}
/// The folder of a package: at the root, or below `crates/` without the prefix of our names.
pub(crate) fn package_dir(root: &Path, package: &str) -> PathBuf {
    let at_root = root.join(package);
    let name = package.strip_prefix("flannel-").unwrap_or(package);
    if at_root.is_dir() {
        at_root
    } else {
        root.join("crates").join(name)
    }
}

/// The name in a manifest.
pub(crate) fn package_name(manifest: &str) -> Option<&str> {
    manifest
        .split_once("name = \"")?
        .1
        .split_once('"')
        .map(|(name, _)| name)
}

/// The folders that have a manifest.
pub(crate) fn package_dirs(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [root.to_owned(), root.join("crates")] {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
        {
            let path = entry?.path();
            if path.join("Cargo.toml").is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
