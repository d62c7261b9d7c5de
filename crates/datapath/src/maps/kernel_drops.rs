//! Packets of pods that the kernel drops, such as by a rule of netfilter: the program that reports
//! them to the monitor.
//!
//! It is loaded with the others and pinned, and attached to nothing. An observer attaches it for as
//! long as it observes: the link is a file descriptor, so it is gone with the process.

use std::{fs, path::Path};

use aya::{Ebpf, programs::RawTracePoint};
use flannel_common::abi::program::REPORT_DROPS;
use flannel_host::{error_chain::chain, kernel_types};

use crate::{DatapathError, PinRoot, kernel::interrupted, pins};

/// The name of the layout in the object.
pub(crate) const LAYOUT: &str = "DROPS";

/// The kernel is there whenever it drops a packet.
const TRACEPOINT: &str = "kfree_skb";

/// Loads the program and pins it. Flows need it for nothing else than drops of the kernel, so a
/// kernel without it, or one that refuses it, has no pin.
pub(crate) fn load(ebpf: &mut Ebpf, pins: &PinRoot) -> Result<(), DatapathError> {
    let pin = pins.drop_reporter();
    if !kernel_types::drop_layout().is_known() {
        return pins::remove(&pin);
    }
    let program: &mut RawTracePoint = ebpf
        .program_mut(REPORT_DROPS)
        .ok_or(DatapathError::Missing {
            kind: "program",
            name: REPORT_DROPS,
        })?
        .try_into()
        .map_err(DatapathError::program(REPORT_DROPS))?;
    if let Err(error) = interrupted::retry(|| program.load()) {
        tracing::info!(
            error = chain(&error),
            "packets that the kernel drops are not reported to observers of flows"
        );
        return pins::remove(&pin);
    }
    pins::replace(&pin, |path| program.pin(path))
}

/// The attached program; dropped, it is detached.
pub struct DropReporter {
    _program: RawTracePoint,
}

impl DropReporter {
    /// Attaches the pinned program.
    pub fn attach(pins: &PinRoot) -> Result<Self, DatapathError> {
        let pin = pins.drop_reporter();
        if is_absent(&pin) {
            return Err(DatapathError::NoDropReasons);
        }
        let mut program =
            RawTracePoint::from_pin(&pin).map_err(DatapathError::program(REPORT_DROPS))?;
        program
            .attach(TRACEPOINT)
            .map_err(DatapathError::program(REPORT_DROPS))?;
        Ok(Self { _program: program })
    }
}

fn is_absent(pin: &Path) -> bool {
    matches!(fs::exists(pin), Ok(false))
}
