//! Tests of what this kernel lets the programs do, with maps and programs that are gone afterwards.

use aya::programs::RawTracePoint;
use flannel_common::abi::program::{COUNT_POLLS, Program};
use flannel_host::{family::Family, kernel_types};

use crate::{
    DatapathError, PinRoot, attach,
    kernel::interrupted,
    load::{record::LoadRecord, refusal, trial::Trial},
    maps::room::{self, KernelLimit},
};

/// Fails if the kernel lacks a helper that the programs call. Makes no map, so it says the same
/// with and without the privileges (and before Linux 5.11 the memory) that maps take.
pub fn helpers() -> Result<(), DatapathError> {
    refusal::check_helpers()
}

/// Results of the test of a kernel that accepts every program.
#[derive(Debug)]
pub struct Accepted {
    /// The highest mode the kernel allows, if it does not allow all.
    pub limit: Option<KernelLimit>,
    /// An error if the kernel does not run a program after its NAPI polls and softirqs.
    pub polls: Result<(), DatapathError>,
}

/// Checks that the kernel accepts every program. Those that a load by this very build has pinned
/// below `pins` are not loaded again, because the verifier takes up to 0.25 s for each.
pub fn programs(pins: Option<&PinRoot>) -> Result<Accepted, DatapathError> {
    helpers()?;
    let accepted = pins
        .map(LoadRecord::programs_of_this_build)
        .unwrap_or_default();
    let others: Vec<Program> = Program::ALL
        .into_iter()
        .filter(|program| !accepted.contains(program))
        .collect();
    let mut trial = Trial::alone(others)?;
    Ok(Accepted {
        limit: room::ask(trial.object(), &Family::BOTH)?.limit,
        polls: polls(&mut trial),
    })
}

fn polls(trial: &mut Trial) -> Result<(), DatapathError> {
    let program: &mut RawTracePoint = trial
        .object()
        .program_mut(COUNT_POLLS)
        .ok_or(DatapathError::Missing {
            kind: "program",
            name: COUNT_POLLS,
        })?
        .try_into()
        .map_err(DatapathError::program(COUNT_POLLS))?;
    let attached = interrupted::retry(|| program.load()).and_then(|()| {
        attach::polls::TRACEPOINTS
            .iter()
            .try_for_each(|(tracepoint, _)| program.attach(tracepoint).map(drop))
    });
    attached.map_err(DatapathError::program(COUNT_POLLS))
}

/// Returns true if the programs know where a packet's conntrack entry is.
pub fn reads_conntrack() -> bool {
    kernel_types::layout().nfct != 0
}
