//! The agent's files and privileges.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};

use super::check::Checks;

/// The paths of the agent's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// subnet.env.
    pub subnet_file: PathBuf,
    /// The directory of the agent's socket and state.
    pub state_dir: PathBuf,
    /// The directory under which BPF objects are pinned.
    pub bpf_pin_root: PathBuf,
    /// The private key of WireGuard.
    pub wireguard_key_file: PathBuf,
}

/// Flags of the files of the agent, and of its capabilities.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files and privileges")]
pub(super) struct PathFlags {
    /// File with our subnet for the container runtime; absolute path
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "/run/flannel/subnet.env",
    )]
    subnet_file: String,
    /// Directory for the agent's socket, lock, list of qdiscs it added, record of sysctls it
    /// changed and record of its lease; one agent at a time. Absolute path
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        default_value = "/run/flannel",
    )]
    state_dir: String,
    /// Directory under which BPF objects are pinned; a bpf filesystem is mounted there, or on
    /// /sys/fs/bpf, when there is none. Absolute path
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        default_value = "/sys/fs/bpf/flannel",
    )]
    bpf_pin_root: String,
    /// File with the private key for the backend wireguard, in base64; made with mode 0400 if there
    /// is none. Absolute path
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, env = "WIREGUARD_KEY_FILE")]
    #[arg(default_value = "/run/flannel/wgkey")]
    wireguard_key_file: String,
    /// Keep every capability the agent was started with, instead of those its options need
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) keep_capabilities: bool,
}

impl PathFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> Paths {
        Paths {
            subnet_file: absolute("subnet-file", &self.subnet_file, checks),
            state_dir: absolute("state-dir", &self.state_dir, checks),
            bpf_pin_root: absolute("bpf-pin-root", &self.bpf_pin_root, checks),
            wireguard_key_file: absolute("wireguard-key-file", &self.wireguard_key_file, checks),
        }
    }
}

fn absolute(flag: &'static str, value: &str, checks: &mut Checks) -> PathBuf {
    let path = PathBuf::from(value);
    if !path.is_absolute() {
        checks.refuse(flag, value, "an absolute path");
    }
    path
}
