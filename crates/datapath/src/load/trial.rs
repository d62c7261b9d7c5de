//! A trial: what a program would do to a packet, found out without a trace.
//!
//! A pinned program that is run on a synthetic packet would count it, note it, end its flow. So the
//! embedded object is loaded once more, unpinned and attached nowhere. It reads the pinned maps
//! that its programs only read - mode, configuration, peers, pods, the guard's modes - and has the
//! others to itself: counters, flows, notes, suspects. What goes into the private flow table is a
//! copy ([`Trial::copy_flow`]). [`Program::ToUnderlay`] writes into the peer maps and is therefore
//! no candidate.
//!
//! The pinned programs may come from another build than this one; [`Trial::is_as_pinned`] detects
//! that.

use std::{panic, path::Path, thread};

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, MapData, PerCpuArray},
    programs::{SchedClassifier, TestRun as _, TestRunOptions},
};
use flannel_common::{
    abi::{
        kernel::KernelLayout,
        maps::{
            ARRIVALS, CONFIG, ECMP_PATHS, ENTRANCES, ENTRANCES6, FAST, FLOW_HINTS, FLOW_HINTS6,
            FLOWS, FLOWS6, GUARD, HELPER_PORTS, MODE, NAT_VTEPS, ONLY, PEERS, PEERS6, PENDING,
            PENDING6, PODS, PROBATION, PROBATION6, STATS, VTEPS,
        },
        program::Program,
        reason::Reason,
        stats::{Counter, slot},
        tick::tick,
    },
    flow::Flow,
    flow::{
        arrival::Arrival,
        flow_hint::FlowHint,
        flow_key::{Address, FlowKey},
    },
};
use flannel_host::{family::Family, kernel_types};

use crate::{
    DatapathError, PinRoot, Shape,
    kernel::{clock, interrupted},
    load::{self, capacities::pending_slots, flow_table, object, record::LoadRecord},
    maps::{flow_hints, flows::FlowMap},
};

/// Maps that the programs of a trial share with the active programs, and only read.
const SHARED: [&str; 11] = [
    PEERS,
    PEERS6,
    ECMP_PATHS,
    VTEPS,
    MODE,
    CONFIG,
    FAST,
    PODS,
    HELPER_PORTS,
    GUARD,
    NAT_VTEPS,
];
/// Flows a trial needs: one and its way back.
const FLOWS_OF_A_TRIAL: u32 = 16;

/// Offsets in `struct __sk_buff` ([include/uapi/linux/bpf.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/bpf.h)).
const SKB_LEN: usize = 192;
const SKB_IFINDEX: usize = 40;

/// Programs that leave no trace.
pub struct Trial {
    ebpf: Ebpf,
}

impl Trial {
    /// Programs over the pinned maps, for packets of one family. Those that `programs` returns are
    /// loaded at once, the others when they are first run. It is called when there is nothing left
    /// to do but that.
    pub fn new(
        pins: &PinRoot,
        family: Family,
        programs: impl FnOnce() -> Vec<Program>,
    ) -> Result<Self, DatapathError> {
        Self::over(Some(pins), &[family], programs)
    }

    /// These programs with all maps to themselves, for one subnet.
    pub fn alone(programs: Vec<Program>) -> Result<Self, DatapathError> {
        Self::over(None, &Family::BOTH, || programs)
    }

    /// As [`crate::load()`]: where programs may not read the kernel's memory, those are tried that
    /// do not.
    fn over(
        pins: Option<&PinRoot>,
        families: &[Family],
        programs: impl FnOnce() -> Vec<Program>,
    ) -> Result<Self, DatapathError> {
        // The loader reads the kernel's types too, for some 30 ms.
        let layout = thread::spawn(kernel_types::layout);
        let mut trial = Self::reading(pins, families, || joined(layout.join()))?;
        let programs = programs();
        match trial.load(&programs) {
            Err(DatapathError::Refused { .. })
                if kernel_types::layout() != KernelLayout::UNKNOWN =>
            {
                trial = Self::reading(pins, families, || KernelLayout::UNKNOWN)?;
                trial.load(&programs)?;
            }
            other => other?,
        }
        Ok(trial)
    }

    fn reading(
        pins: Option<&PinRoot>,
        families: &[Family],
        layout: impl FnOnce() -> KernelLayout,
    ) -> Result<Self, DatapathError> {
        let bytes = object::bytes()?;
        let on = load::families_of(families);
        let mut loader = load::loader();
        let known_layout = layout();
        loader
            .override_global(load::LAYOUT, &known_layout, true)
            .override_global(load::FAMILIES, &on, true);
        for (name, capacity) in [
            (FLOWS, FLOWS_OF_A_TRIAL),
            (FLOWS6, FLOWS_OF_A_TRIAL),
            (ENTRANCES, FLOWS_OF_A_TRIAL),
            (ENTRANCES6, FLOWS_OF_A_TRIAL),
            (ARRIVALS, pending_slots()),
            (PENDING, pending_slots()),
            (PENDING6, pending_slots()),
            (PROBATION, 1),
            (PROBATION6, 1),
            (FLOW_HINTS, 1),
            (FLOW_HINTS6, 1),
        ] {
            loader.map_max_entries(name, capacity);
        }
        if let Some(pins) = pins {
            share(&mut loader, pins, &bytes)?;
        }
        Ok(Self {
            ebpf: loader.load(&bytes)?,
        })
    }

    /// Lets the programs of the trial know the flow with this key, as the attached programs know
    /// it, except for the arrival of its packets. Returns true if they do.
    pub fn copy_flow<A: Address>(
        &mut self,
        pins: &PinRoot,
        name: &'static str,
        key: &FlowKey<A>,
        arrival: Arrival,
    ) -> Result<bool, DatapathError>
    where
        FlowKey<A>: Pod,
        Flow<A>: Pod,
    {
        let Some(flow) = FlowMap::open(pins, name)?.get(key)? else {
            return Ok(false);
        };
        let mut own: HashMap<&mut MapData, FlowKey<A>, Flow<A>> = self.map(name)?;
        own.insert(key, Flow { arrival, ..flow }, 0)
            .map_err(DatapathError::map(name))?;
        self.hint_at_table(name)?;
        Ok(true)
    }

    /// Lets the programs look into the flow table for every key: the map of the trial has one hint,
    /// and where there is none they look.
    fn hint_at_table(&mut self, flows: &str) -> Result<(), DatapathError> {
        let name = flow_hints::name_for(flows);
        let mut hints: Array<&mut MapData, FlowHint> = self.map(name)?;
        let in_table_until = FlowHint::until(tick(clock::now_ns()));
        let hint = FlowHint {
            in_table_until,
            ..FlowHint::default()
        };
        hints.set(ONLY, hint, 0).map_err(DatapathError::map(name))
    }

    /// Returns true if the pinned program is the same as the one here, by the tag, a hash of the
    /// instructions.
    pub fn is_as_pinned(&mut self, program: Program, pins: &PinRoot) -> bool {
        let pinned =
            SchedClassifier::from_pin(pins.program(program)).and_then(|pinned| pinned.info());
        let ours = self.program(program).ok().and_then(|ours| ours.info().ok());
        matches!((pinned, ours), (Ok(pinned), Some(ours)) if pinned.tag() == ours.tag())
    }

    /// Runs a program on a frame that comes in, or is about to leave, by the device `ifindex` of
    /// this network namespace. Returns the reasons it gave: two if it learned from the packet in
    /// addition to its verdict.
    pub fn run(
        &mut self,
        program: Program,
        frame: &[u8],
        ifindex: u32,
    ) -> Result<Vec<Reason>, DatapathError> {
        let before = self.counts(program)?;
        let mut skb = [0_u8; SKB_LEN];
        skb[SKB_IFINDEX..SKB_IFINDEX + 4].copy_from_slice(&ifindex.to_ne_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.ctx_in = Some(&skb);
        self.program(program)?
            .test_run(options)
            .map_err(DatapathError::program(program.name()))?;
        let after = self.counts(program)?;
        let counted = Reason::ALL.into_iter().zip(before.into_iter().zip(after));
        Ok(counted
            .filter(|(_, (before, after))| after > before)
            .map(|(reason, _)| reason)
            .collect())
    }

    /// Loads programs, two at a time where memory is ample: the verifier takes some 0.1 s for each.
    fn load(&mut self, programs: &[Program]) -> Result<(), DatapathError> {
        let mut found: Vec<_> = self
            .ebpf
            .programs_mut()
            .filter_map(|(name, loadable)| {
                Some((
                    programs.iter().position(|program| program.name() == name)?,
                    loadable,
                ))
            })
            .collect();
        // The first one that is refused is named, and the same at each try.
        found.sort_unstable_by_key(|(place, _)| *place);
        let mut classifiers = Vec::new();
        for (place, loadable) in found {
            let name = programs[place].name();
            let classifier: &mut SchedClassifier =
                loadable.try_into().map_err(DatapathError::program(name))?;
            classifiers.push((name, classifier));
        }
        let at_a_time = if flow_table::memory_is_ample() { 2 } else { 1 };
        classifiers
            .chunks_mut(at_a_time)
            .try_for_each(load_together)
    }

    /// Returns the object, for programs that are not TC programs.
    pub(crate) const fn object(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    /// The program, loaded at its first use.
    fn program(&mut self, program: Program) -> Result<&mut SchedClassifier, DatapathError> {
        let name = program.name();
        let missing = DatapathError::Missing {
            kind: "program",
            name,
        };
        let found: &mut SchedClassifier = self
            .ebpf
            .program_mut(name)
            .ok_or(missing)?
            .try_into()
            .map_err(DatapathError::program(name))?;
        load_once(name, found)?;
        Ok(found)
    }

    fn counts(&mut self, program: Program) -> Result<Vec<u64>, DatapathError> {
        let stats: PerCpuArray<_, Counter> = self.map(STATS)?;
        let sum = |reason| {
            let cpus = stats
                .get(&slot(program, reason), 0)
                .map_err(DatapathError::map(STATS))?;
            Ok(cpus.iter().map(|cpu| cpu.packets).sum())
        };
        Reason::ALL.into_iter().map(sum).collect()
    }

    fn map<'a, M>(&'a mut self, name: &'static str) -> Result<M, DatapathError>
    where
        M: TryFrom<&'a mut aya::maps::Map, Error = aya::maps::MapError>,
    {
        let map = self
            .ebpf
            .map_mut(name)
            .ok_or(DatapathError::Missing { kind: "map", name })?;
        M::try_from(map).map_err(DatapathError::map(name))
    }
}

/// Loads each program on a thread.
fn load_together(
    classifiers: &mut [(&'static str, &mut SchedClassifier)],
) -> Result<(), DatapathError> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (name, classifier) in classifiers {
            threads.push(scope.spawn(|| load_once(name, classifier)));
        }
        threads
            .into_iter()
            .try_for_each(|thread| joined(thread.join()))
    })
}

/// Returns what a thread that was joined has returned; a panic of the thread goes on here.
fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn load_once(name: &'static str, classifier: &mut SchedClassifier) -> Result<(), DatapathError> {
    if classifier.fd().is_ok() {
        return Ok(());
    }
    interrupted::retry(|| classifier.load()).map_err(DatapathError::program(name))
}

/// Lets the loader use the pins of the shared maps. All must be there, because it would otherwise
/// create them, and must have the shape that the programs know: a load by this very build has left
/// them so.
fn share(loader: &mut EbpfLoader<'_>, pins: &PinRoot, object: &[u8]) -> Result<(), DatapathError> {
    let is_of_this_build = !LoadRecord::programs_of_this_build(pins).is_empty();
    let object = if is_of_this_build {
        None
    } else {
        Some(aya_obj::Object::parse(object)?)
    };
    for name in SHARED {
        let path = pins.map(name);
        let found = pinned_shape(&path, pins)?;
        if let Some(object) = &object {
            let wanted = object
                .maps
                .get(name)
                .ok_or(DatapathError::Missing { kind: "map", name })?;
            if found != Shape::of_object(wanted, found.max_entries) {
                return Err(DatapathError::OtherShape { name });
            }
        }
        loader.map_max_entries(name, found.max_entries);
        loader.map_pin_path(name, path);
    }
    Ok(())
}

fn pinned_shape(path: &Path, pins: &PinRoot) -> Result<Shape, DatapathError> {
    let failed = |source| DatapathError::OpenPin {
        path: path.to_owned(),
        source,
    };
    match MapData::from_pin(path).map_err(failed) {
        Ok(map) => Shape::of_kernel(&map).map_err(failed),
        Err(error) if error.is_absent() => Err(pins.not_pinned()),
        Err(error) => Err(error),
    }
}
