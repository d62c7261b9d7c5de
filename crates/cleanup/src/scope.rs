//! The scope of a cleanup.

use std::path::PathBuf;

use clap::ValueEnum;
use flannel_datapath::PinRoot;

/// The scope of a cleanup.
#[derive(Clone, Debug)]
pub struct CleanupScope {
    /// The pins.
    pub pins: PinRoot,
    /// The state directory.
    pub state_dir: PathBuf,
    /// subnet.env, if it is to go too.
    pub subnet_file: Option<PathBuf>,
    /// Leave what stock flannel would use: devices, routes and rules.
    pub keep_network: bool,
    /// When sysctls are set back.
    pub restore_sysctls: When,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

/// When sysctls are set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Once conntrack lists no established TCP connection of a pod
    #[default]
    Unused,
    /// Now: TCP connections of pods that were replayed break
    Now,
}
