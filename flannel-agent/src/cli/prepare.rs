//! `flannel-agent prepare`.

use anyhow::{Context as _, bail};
use clap::Args;
use flannel_host::sysctl_record::Record;

use super::StateOptions;
use crate::{fast::ConntrackSysctls, privileges, state_dir::StateDir};

/// The place for the record of the values before.
#[derive(Debug, Args)]
pub struct PrepareOptions {
    #[command(flatten)]
    state: StateOptions,
}

/// Runs the command; the text to print.
pub(super) fn run(options: &PrepareOptions) -> anyhow::Result<String> {
    let dir = &options.state.state_dir;
    privileges::check()?;
    let _state = StateDir::claim(dir, None)?;
    Record::load(dir).context("without a record of the values before none is set")?;
    let mut sysctls = ConntrackSysctls::new(true, dir, []);
    if let Some(obstacle) = sysctls.prepare()? {
        bail!("mode fast leaves TCP to the kernel: {obstacle}");
    }
    let line = |changed: &flannel_host::sysctl_record::ChangedSysctl| {
        format!("{} is {}, {} before\n", changed.name, changed.set, changed.before)
    };
    Ok(sysctls.changed().iter().map(line).collect())
}
