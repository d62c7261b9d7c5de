//! The guard's program at the driver: XDP in native mode on the external interface, by a pinned
//! link.
//!
//! It never runs in generic mode, where it would be slower than the TC program whose work it saves.
//! It never replaces a program that is already attached; the kernel refuses that
//! (`dev_xdp_attach()` in [net/core/dev.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c)). It is loaded only if it is
//! requested: it needs kernel 5.18, and no other program here does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aya::{
    EbpfLoader,
    programs::{
        ProgramError, Xdp, XdpMode,
        links::{FdLink, PinnedLink},
    },
};
use aya_obj::programs::xdp::XdpAttachType;
use flannel_common::abi::{maps::ALL, program::EARLY_GUARD};
use flannel_host::error_chain::chain;

use crate::{DatapathError, PinRoot, kernel::interrupted, load::object, pins};

/// The setting that decides if the guard runs at the driver, by XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpGuardMode {
    /// Not requested.
    #[default]
    Off,
    /// Requested where the driver can run it.
    Auto,
    /// Requested; reported as an error if the driver cannot run it.
    Native,
}

/// Keeps the program where it is asked for.
#[derive(Debug)]
pub struct EarlyGuard {
    pins: PinRoot,
    requested: XdpGuardMode,
    is_loaded: bool,
    /// The desired device at the last [`Self::apply`], and the error if it failed.
    last: Option<(Option<u32>, Option<String>)>,
}

impl EarlyGuard {
    /// As asked for. An earlier agent may have left it on a device.
    pub const fn new(pins: PinRoot, requested: XdpGuardMode) -> Self {
        Self {
            pins,
            requested,
            is_loaded: false,
            last: None,
        }
    }

    /// Returns the setting.
    pub const fn requested(&self) -> XdpGuardMode {
        self.requested
    }

    /// Makes the next [`Self::apply`] try again what was refused or has been removed. An attached
    /// program stays: some drivers restart with each program they are given.
    pub fn invalidate(&mut self) {
        let is_there = |(wanted, reason): &(Option<u32>, Option<String>)| {
            reason.is_none() && wanted.is_none_or(|index| link_pin(&self.pins, index).exists())
        };
        if !self.last.as_ref().is_some_and(is_there) {
            self.last = None;
        }
    }

    /// Returns true if the last [`Self::apply`] left the guard attached at the driver.
    pub fn is_attached(&self) -> bool {
        matches!(self.last, Some((Some(_), None)))
    }

    /// Returns the error of the last [`Self::apply`], if it failed.
    pub fn refused(&self) -> Option<&str> {
        self.last.as_ref().and_then(|(_, reason)| reason.as_deref())
    }

    /// Puts it on this device, and takes it off all others.
    pub fn apply(&mut self, device: Option<u32>) {
        let wanted = device.filter(|_| self.requested != XdpGuardMode::Off);
        if self.last.as_ref().is_some_and(|(last, _)| *last == wanted) {
            return;
        }
        let applied = self
            .sweep(wanted)
            .and_then(|()| wanted.map_or(Ok(()), |index| self.attach(index)));
        let reason = applied.err().map(|error| chain(&error));
        match (&reason, self.requested) {
            (None, _) if wanted.is_some() => {
                tracing::info!(ifindex = wanted, "the guard is at the driver, by XDP");
            }
            (Some(reason), XdpGuardMode::Native) => {
                tracing::error!(
                    reason,
                    "--xdp-guard=native cannot be done; tried again, and the guard is at TC \
                     meanwhile"
                );
            }
            (Some(reason), _) => tracing::info!(reason, "the guard is not at the driver"),
            (None, _) => {}
        }
        self.last = Some((wanted, reason));
    }

    fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        if !self.is_loaded {
            load(&self.pins)?;
            self.is_loaded = true;
        }
        let failed = DatapathError::program(EARLY_GUARD);
        let mut program =
            Xdp::from_pin(program_pin(&self.pins), XdpAttachType::Interface).map_err(failed)?;
        let pin = link_pin(&self.pins, ifindex);
        if update(&mut program, &pin)? {
            return Ok(());
        }
        pins::remove(&pin)?;
        let link = program
            .attach_to_if_index(ifindex, XdpMode::Driver)
            .and_then(|id| program.take_link(id));
        let link = link.map_err(DatapathError::program(EARLY_GUARD))?;
        let link = FdLink::try_from(link).map_err(|source| DatapathError::Link {
            path: pin.clone(),
            source,
        })?;
        link.pin(&pin)
            .map_err(|source| DatapathError::Pin { path: pin, source })?;
        Ok(())
    }

    /// Takes it off devices it is not wanted on; where it is wanted nowhere the program goes too.
    fn sweep(&self, wanted: Option<u32>) -> Result<(), DatapathError> {
        let dir = self.pins.links();
        let failed = |source| DatapathError::ChangePin {
            action: "list",
            path: dir.clone(),
            source,
        };
        let keep = wanted.map(|index| link_pin(&self.pins, index));
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if is_link_name(name) && keep.as_ref() != Some(&path) {
                pins::remove(&path)?;
            }
        }
        if wanted.is_none() {
            pins::remove(&program_pin(&self.pins))
        } else {
            Ok(())
        }
    }
}

/// Swaps the program of the pinned link. False if there is none, or its device is gone.
fn update(program: &mut Xdp, pin: &Path) -> Result<bool, DatapathError> {
    let Ok(old) = PinnedLink::from_pin(pin) else {
        return Ok(false);
    };
    let failed = |source| DatapathError::Link {
        path: pin.to_owned(),
        source,
    };
    let swapped = program.attach_to_link(FdLink::from(old).try_into().map_err(failed)?);
    let kept = swapped.and_then(|id| program.take_link(id));
    match kept {
        // The link belongs to its pin; taken out, so that dropping the program does not touch it.
        Ok(link) => {
            drop(link);
            Ok(true)
        }
        Err(ProgramError::SyscallError(_)) => Ok(false),
        Err(error) => Err(DatapathError::program(EARLY_GUARD)(error)),
    }
}

/// Loads and pins the program, over the maps that are pinned already.
fn load(pins: &PinRoot) -> Result<(), DatapathError> {
    let mut loader = EbpfLoader::new();
    for name in ALL {
        loader.map_pin_path(name, pins.map(name));
    }
    let mut ebpf = loader.load(&object::bytes()?)?;
    let program: &mut Xdp = ebpf
        .program_mut(EARLY_GUARD)
        .ok_or(DatapathError::Missing {
            kind: "program",
            name: EARLY_GUARD,
        })?
        .try_into()
        .map_err(DatapathError::program(EARLY_GUARD))?;
    interrupted::retry(|| program.load()).map_err(DatapathError::program(EARLY_GUARD))?;
    pins::replace(&program_pin(pins), |path| program.pin(path))
}

fn program_pin(pins: &PinRoot) -> PathBuf {
    pins.dir().join("programs").join(EARLY_GUARD)
}

pub(super) fn is_link_name(name: &str) -> bool {
    name.rsplit_once('-')
        .is_some_and(|(program, _)| program == EARLY_GUARD)
}

fn link_pin(pins: &PinRoot, ifindex: u32) -> PathBuf {
    pins.links().join(format!("{EARLY_GUARD}-{ifindex}"))
}
