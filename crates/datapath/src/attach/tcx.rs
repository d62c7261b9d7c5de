//! TCX: one pinned link per program and device.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aya::{
    programs::{
        LinkOrder, ProgramError, SchedClassifier,
        links::{FdLink, PinnedLink},
        tc::TcAttachOptions,
    },
    sys::SyscallError,
};
use flannel_common::abi::program::Program;

use super::query;
use crate::{DatapathError, Hook, PinRoot, pins};

/// Attaches the program to the device. A pinned link that is still attached gets the program, so
/// that the hook never lacks one; otherwise a new link puts it last in the chain.
pub(super) fn attach(
    program: &mut SchedClassifier,
    hook: &Hook,
    pin: &Path,
) -> Result<(), DatapathError> {
    match update(program, hook, pin) {
        Ok(true) => Ok(()),
        Ok(false) => create(program, hook, pin),
        Err(error) => Err(error),
    }
}

/// Swaps the program of the pinned link. Returns false if the link does not exist or its device is
/// gone (`ENOLINK`).
fn update(program: &mut SchedClassifier, hook: &Hook, pin: &Path) -> Result<bool, DatapathError> {
    let old = match PinnedLink::from_pin(pin) {
        Ok(old) => old,
        Err(source) => {
            let error = DatapathError::Link {
                path: pin.to_owned(),
                source,
            };
            return if error.is_absent() {
                Ok(false)
            } else {
                Err(error)
            };
        }
    };
    let link = FdLink::from(old)
        .try_into()
        .map_err(|source| DatapathError::Link {
            path: pin.to_owned(),
            source,
        })?;
    match program.attach_to_link(link) {
        Ok(id) => {
            // The link belongs to its pin; taken out, so that dropping the program does not touch
            // it.
            drop(program.take_link(id).map_err(failed(hook))?);
            Ok(true)
        }
        Err(ProgramError::SyscallError(SyscallError { io_error, .. }))
            if io_error.raw_os_error() == Some(nix::libc::ENOLINK) =>
        {
            pins::remove(pin)?;
            Ok(false)
        }
        Err(error) => Err(failed(hook)(error)),
    }
}

fn create(program: &mut SchedClassifier, hook: &Hook, pin: &Path) -> Result<(), DatapathError> {
    let order = TcAttachOptions::TcxOrder(LinkOrder::last());
    let id = program
        .attach_with_options(&hook.ifname, hook.direction(), order)
        .map_err(failed(hook))?;
    let link = program.take_link(id).map_err(failed(hook))?;
    let link = FdLink::try_from(link).map_err(|source| DatapathError::Link {
        path: pin.to_owned(),
        source,
    })?;
    link.pin(pin).map_err(|source| DatapathError::Pin {
        path: pin.to_owned(),
        source,
    })?;
    Ok(())
}

/// Returns true if the program with this id is on the device, on the side of the hook.
pub(super) fn is_attached(hook: &Hook, program_id: u32) -> bool {
    query::programs(hook.ifindex, hook.direction())
        .is_ok_and(|programs| programs.contains(&program_id))
}

/// The pinned links: program, interface index, pin.
pub(super) fn pinned(pins: &PinRoot) -> Result<Vec<(Program, u32, PathBuf)>, DatapathError> {
    let dir = pins.links();
    let failed = |source| DatapathError::ChangePin {
        action: "list",
        path: dir.clone(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(parse);
        found.extend(name.map(|(program, ifindex)| (program, ifindex, path)));
    }
    Ok(found)
}

pub(super) fn parse(name: &str) -> Option<(Program, u32)> {
    let (program, ifindex) = name.rsplit_once('-')?;
    let program = Program::ALL
        .into_iter()
        .find(|known| known.name() == program)?;
    Some((program, ifindex.parse().ok()?))
}

fn failed(hook: &Hook) -> impl Fn(ProgramError) -> DatapathError + '_ {
    |source| DatapathError::Attach {
        program: hook.program.name(),
        ifname: hook.ifname.clone(),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_are_read_back() {
        assert_eq!(parse("to_tunnel-12"), Some((Program::ToTunnel, 12)));
        assert_eq!(parse("to_tunnel"), None);
        assert_eq!(parse("other-12"), None);
        assert_eq!(parse("to_tunnel-x"), None);
    }
}
