//! Files of the options that root may not use as their owner: those of other users, which
//! `CAP_DAC_*` open.
//!
//! The kernel decides, while only the capabilities to keep are effective.

use std::path::Path;

use flannel_options::RunOptions;
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    unistd::{AccessFlags, faccessat},
};

use super::need::{CapabilityNeed, READ, WRITE};

/// Returns the capabilities needed to use the files and directories of the options.
pub(super) fn needs(options: &RunOptions) -> Vec<CapabilityNeed> {
    let mut needs = Vec::new();
    if let Some(path) = reads(options)
        .into_iter()
        .find(|path| is_denied(path, AccessFlags::R_OK))
    {
        tracing::info!(path = %path.display(), "a file of another user, which only \
            CAP_DAC_READ_SEARCH lets the agent read");
        needs.push(READ);
    }
    if let Some(path) = writes(options).into_iter().find(|path| cannot_write(path)) {
        tracing::info!(path = %path.display(), "a directory of another user, which only \
            CAP_DAC_OVERRIDE lets the agent use");
        needs.push(WRITE);
    }
    needs
}

fn reads(options: &RunOptions) -> Vec<&Path> {
    let tls = &options.etcd.tls;
    let client = tls
        .client
        .iter()
        .flat_map(|client| [&client.certificate, &client.key]);
    let kube = options
        .kube
        .iter()
        .flat_map(|kube| kube.kubeconfig.iter().chain([&kube.net_config]));
    tls.ca
        .iter()
        .chain(client)
        .chain(kube)
        .chain(options.flows.files())
        .map(AsRef::as_ref)
        .collect()
}

fn writes(options: &RunOptions) -> Vec<&Path> {
    let subnet_dir = options.paths.subnet_file.parent();
    subnet_dir
        .into_iter()
        .chain([&*options.paths.state_dir, &*options.paths.bpf_pin_root])
        .collect()
}

/// The nearest directory that exists is the one to write to.
fn cannot_write(path: &Path) -> bool {
    let flags = AccessFlags::W_OK | AccessFlags::X_OK;
    let mut answers = path
        .ancestors()
        .map(|dir| faccessat(AT_FDCWD, dir, flags, AtFlags::AT_EACCESS));
    answers.find(|answer| *answer != Err(Errno::ENOENT)) == Some(Err(Errno::EACCES))
}

fn is_denied(path: &Path, flags: AccessFlags) -> bool {
    faccessat(AT_FDCWD, path, flags, AtFlags::AT_EACCESS) == Err(Errno::EACCES)
}
