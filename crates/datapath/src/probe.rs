//! Tests of what this kernel lets the programs do, with maps and programs that are gone afterwards.

use aya::programs::RawTracePoint;
use flannel_common::program::{COUNT_POLLS, Program};
use flannel_host::{family::Family, kernel_types};

use super::{
    DatapathError, attach, interrupted, refusal,
    room::{self, KernelLimit},
    trial::Trial,
};

/// Fails if the kernel lacks a helper that the programs call. Makes no map, so it says the same
/// with and without the privileges (and before Linux 5.11 the memory) that maps take.
pub fn helpers() -> Result<(), DatapathError> {
    refusal::check_helpers()
}

/// Checks that the kernel accepts every program. Returns the highest mode it allows, if it does not
/// allow all.
pub fn programs() -> Result<Option<KernelLimit>, DatapathError> {
    helpers()?;
    let mut trial = Trial::alone()?;
    Program::ALL.into_iter().try_for_each(|program| trial.load(program))?;
    Ok(room::ask(trial.object(), &Family::BOTH)?.limit)
}

/// Checks that the kernel runs a program after its NAPI polls and softirqs.
pub fn polls() -> Result<(), DatapathError> {
    let mut trial = Trial::alone()?;
    let program: &mut RawTracePoint = trial
        .object()
        .program_mut(COUNT_POLLS)
        .ok_or(DatapathError::Missing { kind: "program", name: COUNT_POLLS })?
        .try_into()
        .map_err(DatapathError::program(COUNT_POLLS))?;
    let attached = interrupted::retry(|| program.load()).and_then(|()| {
        attach::polls::TRACEPOINTS.iter().try_for_each(|(tracepoint, _)| program.attach(tracepoint).map(drop))
    });
    attached.map_err(DatapathError::program(COUNT_POLLS))
}

/// Returns true if the programs know where a packet's conntrack entry is.
pub fn reads_conntrack() -> bool {
    kernel_types::layout().nfct != 0
}
