//! The privileges of this process: checked before they are used, and given up if the options do not
//! need them.
//!
//! Owns the capability sets of the process. Invariants: [`reduce`] runs while there is one thread,
//! because each thread has its own sets and new threads inherit them
//! ([capabilities(7)](https://man7.org/linux/man-pages/man7/capabilities.7.html)); a capability
//! that was given up does not come back, not even by running another program.

mod capability_names;
mod files;
mod need;
mod sets;

use std::{error::Error, io};

use anyhow::{Context as _, bail};
use flannel_datapath as datapath;
use flannel_options::RunOptions;
use flannel_status::PrivilegesStatus;
use nix::{
    errno::Errno,
    libc::{ENOSYS, EPERM},
    unistd::geteuid,
};
use rustix::thread::{
    CapabilitySet, SecureComputingMode, capabilities, no_new_privs, secure_computing_mode,
};

use self::{capability_names::names, need::CapabilityNeed};

/// The privileges of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    effective: CapabilitySet,
    no_new: bool,
    filtered: bool,
}

impl Privileges {
    /// Of this process.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            effective: capabilities(None)?.effective,
            no_new: no_new_privs()?,
            filtered: matches!(secure_computing_mode(), Ok(SecureComputingMode::Filter)),
        })
    }

    /// Returns true if this process may mount filesystems.
    pub fn may_mount(&self) -> bool {
        self.effective.contains(CapabilitySet::SYS_ADMIN)
    }

    /// For the status document.
    pub fn status(&self) -> PrivilegesStatus {
        let capabilities = names(self.effective);
        PrivilegesStatus {
            capabilities,
            no_new_privileges: self.no_new,
            seccomp: self.filtered,
        }
    }

    /// Returns the capabilities that the datapath lacks, each as text with its purpose.
    pub fn missing(&self) -> Vec<String> {
        need::ALWAYS
            .iter()
            .filter(|need| !self.effective.contains(need.capability))
            .map(CapabilityNeed::missing_message)
            .collect()
    }

    /// Returns the reason why the kernel may have refused what the datapath asked for.
    fn explain(&self) -> Option<String> {
        match (self.missing(), self.filtered) {
            (missing, _) if !missing.is_empty() => Some(missing.join("; ")),
            (_, true) => {
                Some("a seccomp profile is in force, which has to let bpf() through".to_owned())
            }
            _ => None,
        }
    }
}

/// Fails unless this process may change the network.
pub fn check() -> anyhow::Result<()> {
    let effective = capabilities(None)
        .context("cannot read the process's own capabilities")?
        .effective;
    if !effective.contains(CapabilitySet::NET_ADMIN) {
        bail!(
            "missing privilege CAP_NET_ADMIN (effective capabilities {:#x}): run as root, or grant \
             CAP_NET_ADMIN, \
             and CAP_BPF and CAP_PERFMON for the eBPF datapath",
            effective.bits()
        );
    }
    Ok(())
}

/// Returns what a refusal has to do with privileges, as an addition to the error's message; empty
/// for every other error of the datapath.
pub fn hint(error: &(dyn Error + 'static)) -> String {
    let why = is_refusal(error)
        .then(|| Privileges::current().ok()?.explain())
        .flatten();
    why.map(|why| format!(" ({why})")).unwrap_or_default()
}

fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    // Profiles refuse with either.
    let denied = |error: &io::Error| matches!(error.raw_os_error(), Some(EPERM | ENOSYS));
    error.downcast_ref().is_some_and(denied) || error.source().is_some_and(is_refusal)
}

/// Adds the remedy to an error of a command that another user than root ran and the kernel refused.
pub fn advise(error: anyhow::Error) -> anyhow::Error {
    advise_user(error, geteuid().is_root())
}

fn advise_user(error: anyhow::Error, is_root: bool) -> anyhow::Error {
    let is_refused = error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let errno = cause.downcast_ref::<Errno>();
        io == Some(io::ErrorKind::PermissionDenied)
            || matches!(errno, Some(Errno::EPERM | Errno::EACCES))
    });
    if is_refused && !is_root {
        error.context("this command has to be run as root")
    } else {
        error
    }
}

/// Gives up the capabilities that the options do not need, after the one thing only `CAP_SYS_ADMIN`
/// can do: mounting the bpf filesystem. Logs each capability that is needed and missing, and what
/// cannot be done without it. Call it before there are other threads.
pub fn reduce(options: &RunOptions) {
    if options.keep_capabilities {
        tracing::info!("every capability is kept, as --keep-capabilities asks for");
        return;
    }
    datapath::mount_for(&options.paths.bpf_pin_root);
    if let Err(error) = sets::keep(options) {
        tracing::warn!(%error, "capabilities that are not needed are kept, because they cannot be \
            given up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_explained_by_what_is_missing_first() {
        let held = |effective, filtered| Privileges {
            effective,
            no_new: true,
            filtered,
        };
        let all = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
        assert_eq!(held(all, false).explain(), None);
        let filtered = held(all, true).explain().expect("a reason");
        assert!(filtered.contains("seccomp"), "{filtered}");
        let missing = held(all - CapabilitySet::BPF, true)
            .explain()
            .expect("a reason");
        assert_eq!(
            missing,
            "CAP_BPF is missing, without which programs and maps cannot be loaded"
        );
    }

    #[test]
    fn a_refused_user_is_advised_to_become_root() {
        let advised = |errno, is_root| {
            let error = anyhow::Error::from(io::Error::from_raw_os_error(errno))
                .context("cannot open the pin");
            advise_user(error, is_root).to_string()
        };
        assert_eq!(advised(EPERM, false), "this command has to be run as root");
        assert_eq!(advised(EPERM, true), "cannot open the pin");
        assert_eq!(advised(ENOSYS, false), "cannot open the pin");
    }

    #[test]
    fn only_refusals_are_explained() {
        assert_eq!(hint(&io::Error::from_raw_os_error(nix::libc::ENOENT)), "");
    }
}
