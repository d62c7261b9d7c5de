//! Becomes another program under a seccomp profile: see `flannel_tests::confined`.

use std::{ffi::OsString, fs, os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};
use clap::Parser;
use flannel_tests::confined::Profile;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Run a command under a seccomp profile
#[derive(Debug, Parser)]
struct Options {
    /// The profile, as container runtimes read it
    #[arg(long)]
    profile: PathBuf,
    /// Let it write to no file of the root file system; other mounts stay as they are
    #[arg(long)]
    read_only: bool,
    /// The command
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let text = fs::read_to_string(&options.profile)
        .with_context(|| options.profile.display().to_string())?;
    let profile = Profile::parse(&text).with_context(|| options.profile.display().to_string())?;
    if options.read_only {
        unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
            .context("a root that cannot be written")?;
    }
    profile.install()?;
    let (program, arguments) = options.command.split_first().context("a command")?;
    Err(Command::new(program).args(arguments).exec()).with_context(|| program.display().to_string())
}
