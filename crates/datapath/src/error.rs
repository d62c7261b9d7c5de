//! Errors of the BPF datapath. None of them stops the agent: the kernel path carries the packets,
//! and `status` shows the error.

use std::{error::Error, io, path::PathBuf};

use aya::{
    EbpfError,
    maps::MapError,
    pin::PinError,
    programs::{ProgramError, links::LinkError, tc::TcError},
};
use flannel_host::family::Family;

use crate::kernel::lock_wait::PATIENCE;

/// An error of the BPF datapath.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// The executable was built without the BPF toolchain.
    #[error(
        "this executable was built without its BPF object (a stub stands in); build it with `cargo \
         xtask build`"
    )]
    Stub,
    /// The bpffs could not be mounted or the pin directories not made.
    #[error("cannot prepare the pin directory {}: {source}", path.display())]
    PinDirectory {
        /// The directory.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The pin directory is not on a bpffs and none can be mounted there.
    #[error("{} is not on a bpf filesystem; mount one (`mount -t bpf bpf <dir>`) or choose another \
        --bpf-pin-root", path.display())]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// The mount namespace for the mount of a bpffs.
    #[error("cannot enter the mount namespace {}: {source}", path.display())]
    MountNamespace {
        /// The file that stands for it.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Announced connections cannot be read.
    #[error("cannot read announced connections: {source}")]
    Announcements {
        /// The error of the system call.
        source: io::Error,
    },
    /// The object cannot be parsed.
    #[error("the embedded BPF object is damaged: {0}")]
    Object(#[from] aya_obj::ParseError),
    /// The object lacks something it must have.
    #[error("the embedded BPF object has no {kind} named {name}")]
    Missing {
        /// "map" or "program".
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The network needs a larger peer map than there may be.
    #[error("the {family} network has {subnets} subnets; the peer map holds {limit} at most, so \
        this node stays with the kernel path", limit = flannel_common::abi::maps::PEERS_MAX)]
    TooManySubnets {
        /// Of which family.
        family: Family,
        /// The number of subnets.
        subnets: u64,
    },
    /// A map is not pinned there.
    #[error("nothing is pinned below {}: no agent with eBPF has run here, or it was cleaned up, or \
        it has another --bpf-pin-root (then give the same one here)", root.display())]
    NotPinned {
        /// The pin root.
        root: PathBuf,
    },
    /// Only another schema's maps are pinned there.
    #[error("the pins in {} were made by another version of the agent; use the command of that \
        version", dir.display())]
    OtherSchema {
        /// The directory.
        dir: PathBuf,
    },
    /// A pinned map is not of the shape this build's programs know.
    #[error(
        "the pinned map {name} was made by another version of the agent; use the command of that \
         version"
    )]
    OtherShape {
        /// The map.
        name: &'static str,
    },
    /// An existing pin could not be opened.
    #[error("cannot open the pin {}: {source}", path.display())]
    OpenPin {
        /// The pin.
        path: PathBuf,
        /// The error from aya.
        source: MapError,
    },
    /// A pin could not be made, renamed or removed.
    #[error("cannot {action} the pin {}: {source}", path.display())]
    ChangePin {
        /// The action: "rename", "remove" and the like.
        action: &'static str,
        /// The pin.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The kernel refused the object.
    #[error("the kernel refused the BPF object")]
    Load(#[from] EbpfError),
    /// The kernel lacks a helper that the programs call.
    #[error(
        "this kernel lacks the BPF helper {name} ({number}), which Linux has from {since} on; mode \
         encap needs Linux 5.13"
    )]
    MissingHelper {
        /// Its number.
        number: u32,
        /// Its name.
        name: &'static str,
        /// The version of Linux that introduced it.
        since: &'static str,
    },
    /// The kernel did not load a program.
    #[error("the kernel refused the BPF program \
        {program}{}{verdict}", if verdict.is_empty() { "" } else { ": " })]
    Refused {
        /// Its name.
        program: &'static str,
        /// The verifier's reason; empty if it was not asked.
        verdict: String,
        /// All that the verifier said, up to many megabytes.
        log: String,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// Something else was done to a program, without success.
    #[error("the BPF program {program}: {source}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The error from aya.
        #[source]
        source: Box<ProgramError>,
    },
    /// A map could not be read or written.
    #[error("the BPF map {map}: {source}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The error from aya.
        #[source]
        source: MapError,
    },
    /// A pinned object could not be opened or made.
    #[error("the pin {}: {source}", path.display())]
    Pin {
        /// The pin.
        path: PathBuf,
        /// The error from aya.
        #[source]
        source: PinError,
    },
    /// A pinned link could not be opened.
    #[error("the pinned link {}: {source}", path.display())]
    Link {
        /// The pin.
        path: PathBuf,
        /// The error from aya.
        #[source]
        source: LinkError,
    },
    /// A program could not be attached to, or detached from, a device.
    #[error("{program} on {ifname}: {source}")]
    Attach {
        /// The program.
        program: &'static str,
        /// The device.
        ifname: String,
        /// The error from aya.
        #[source]
        source: Box<ProgramError>,
    },
    /// The lock of the words that several processes write cannot be taken.
    #[error("cannot lock {}: {source}", path.display())]
    Lock {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process holds that lock.
    #[error(
        "another process has held the lock on {} for {} s, as if it was stopped while it wrote; \
         `lslocks` shows which, continue or end it and try again",
        path.display(), PATIENCE.as_secs()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Another monitor reads the events.
    #[error("a monitor already runs on the programs pinned below {}, and each event has one \
        reader; end that one first", root.display())]
    MonitorTaken {
        /// The pin root.
        root: PathBuf,
    },
    /// The program that reports packets which the kernel drops is not loaded.
    #[error(
        "the kernel does not say why it drops packets (Linux 5.18 and newer do), or refused the \
         program that reads it"
    )]
    NoDropReasons,
    /// The log of a debug object cannot be read.
    #[error("cannot read the programs' log: {source}")]
    Log {
        /// The error from aya.
        #[source]
        source: aya_log::Error,
    },
    /// A clsact qdisc could not be added.
    #[error("cannot add a clsact qdisc to {ifname}: {source}")]
    Clsact {
        /// The device.
        ifname: String,
        /// The error from aya.
        #[source]
        source: TcError,
    },
}

impl DatapathError {
    /// All that the verifier said of a program it refused.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Refused { log, .. } => Some(log),
            _ => None,
        }
    }

    /// An error of one map.
    pub(super) fn map(map: &'static str) -> impl FnOnce(MapError) -> Self {
        move |source| Self::Map { map, source }
    }

    /// Returns true if the kernel had no memory, or the cgroup allows no more (`ENOMEM` in the
    /// chain).
    pub(super) fn is_out_of_memory(&self) -> bool {
        let mut next: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = next {
            let code = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error);
            if code == Some(nix::libc::ENOMEM) {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// Returns true if the object simply does not exist: the agent has never run here, or was
    /// cleaned up.
    pub fn is_absent(&self) -> bool {
        let io = match self {
            Self::NotPinned { .. } | Self::OtherSchema { .. } => return true,
            Self::OpenPin {
                source: MapError::SyscallError(error),
                ..
            }
            | Self::Link {
                source: LinkError::SyscallError(error),
                ..
            } => Some(&error.io_error),
            Self::ChangePin { source, .. } => Some(source),
            _ => None,
        };
        io.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_memory_is_distinguished_from_one_that_refuses() {
        let load = |code| {
            let io_error = io::Error::from_raw_os_error(code);
            DatapathError::from(EbpfError::MapError(MapError::CreateError {
                name: "FLOWS".to_owned(),
                io_error,
            }))
        };
        assert_eq!(
            [12, 1, 22].map(|code| load(code).is_out_of_memory()),
            [true, false, false]
        );
    }
}
