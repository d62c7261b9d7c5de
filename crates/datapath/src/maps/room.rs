//! A test of `bpf_skb_adjust_room` with the flags by which the programs add and remove outer
//! headers: an older kernel refuses flags it does not know only when the helper is called. And a
//! test of the stack that programs have.

use aya::{
    Ebpf,
    programs::{TestRun as _, TestRunOptions},
};
use flannel_common::abi::{
    mode::Mode,
    program::{ON_TASK_STACK, PROBE_ROOM, ROOM_MADE, ROOM_TAKEN},
};
use flannel_host::family::Family;

use crate::{DatapathError, kernel::classifier};

/// The highest mode the kernel allows, and why no higher one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLimit {
    /// The mode.
    pub mode: Mode,
    /// The reason, as a sentence for the operator.
    pub reason: String,
}

/// The results of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The limit, if there is one.
    pub(crate) limit: Option<KernelLimit>,
    /// A program that a task runs has the stack of that task, so one on another stack was called
    /// from a softirq.
    pub(crate) on_task_stack: bool,
}

/// Asks the kernel about these families.
pub(crate) fn ask(ebpf: &mut Ebpf, families: &[Family]) -> Result<Room, DatapathError> {
    let program = classifier::load(ebpf, PROBE_ROOM)?;
    let mut limits = Vec::new();
    let mut on_task_stack = true;
    for family in families {
        let frame = frame(*family);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&frame);
        let answer = program
            .test_run(options)
            .map_err(DatapathError::program(PROBE_ROOM))?;
        limits.extend(limit(*family, answer.return_value));
        on_task_stack &= answer.return_value & ON_TASK_STACK != 0;
    }
    program
        .unload()
        .map_err(DatapathError::program(PROBE_ROOM))?;
    Ok(Room {
        limit: limits.into_iter().min_by_key(|limit| limit.mode),
        on_task_stack,
    })
}

/// A frame that is long enough to be cut, of zeros but for its EtherType and version.
pub(crate) fn frame(family: Family) -> [u8; 256] {
    let (ethertype, version) = match family {
        Family::V4 => ([0x08, 0x00], 0x45),
        Family::V6 => ([0x86, 0xdd], 0x60),
    };
    let mut frame = [0; 256];
    frame[12..14].copy_from_slice(&ethertype);
    frame[14] = version;
    frame
}

/// Returns the limit that follows from the results, a set of [`ROOM_MADE`] and [`ROOM_TAKEN`].
fn limit(family: Family, worked: u32) -> Option<KernelLimit> {
    let limit = |mode, what| {
        let reason = format!(
            "this kernel refuses to {what} {family} packets the way the programs do \
             (bpf_skb_adjust_room)"
        );
        Some(KernelLimit { mode, reason })
    };
    if worked & ROOM_MADE == 0 {
        limit(Mode::Kernel, "encapsulate")
    } else if worked & ROOM_TAKEN == 0 {
        limit(Mode::Encap, "decapsulate")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_limits_the_mode() {
        let mode = |worked| limit(Family::V6, worked).map(|limit| limit.mode);
        assert_eq!(mode(ROOM_MADE | ROOM_TAKEN), None);
        assert_eq!(mode(ROOM_MADE), Some(Mode::Encap));
        assert_eq!(mode(0), Some(Mode::Kernel));
        let reason = limit(Family::V6, 0).expect("a limit").reason;
        assert!(
            reason.starts_with("this kernel refuses to encapsulate IPv6 packets"),
            "{reason}"
        );
    }
}
