//! Brings the object into the kernel: adopts or replaces the pinned maps, loads the programs that
//! the backend needs, pins them.
//!
//! Programs that the same build loaded before stay as they are (`record`).
//!
//! aya's loader adopts an existing pin of any shape. So every pin is opened and compared here
//! first; one that differs is unlinked (programs that still run keep their own reference) and
//! created again.

pub(crate) mod capacities;
pub(crate) mod flow_table;
mod headroom;
pub(crate) mod object;
pub mod probe;
mod record;
pub(crate) mod refusal;
pub(crate) mod retired;
pub mod schema_takeover;
pub mod trial;

use std::path::Path;

use aya::{
    EbpfLoader,
    maps::{MapData, MapError},
    programs::RawTracePoint,
};
use flannel_common::abi::{
    families::Families,
    kernel::KernelLayout,
    maps::{ALL, in_object},
    program::{COUNT_POLLS, FIND_JUDGES, Program},
};
use flannel_host::{error_chain::chain, family::Family, kernel_types};

use crate::{
    DatapathError, PinRoot,
    kernel::{classifier, debug_log::DebugLog, interrupted},
    load::{
        capacities::{Capacity, Subnets},
        flow_table::FlowTable,
        headroom::Headroom,
        record::LoadRecord,
    },
    maps::{
        kernel_drops,
        room::{self, KernelLimit, Room},
    },
    pins,
};

/// The name of the [`KernelLayout`] in the object.
pub(crate) const LAYOUT: &str = "KERNEL";

/// The name of the [`Families`] in the object.
pub(crate) const FAMILIES: &str = "FAMILIES";

/// The properties in which two maps must agree to count as the same map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `BPF_MAP_TYPE_*`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Capacity.
    pub max_entries: u32,
    /// `BPF_F_*` of creation.
    pub flags: u32,
}

impl Shape {
    pub(crate) fn of_object(map: &aya_obj::Map, max_entries: u32) -> Self {
        Self {
            kind: map.map_type(),
            key_size: map.key_size(),
            value_size: map.value_size(),
            max_entries,
            flags: map.map_flags(),
        }
    }

    /// The shape of a map in the kernel.
    pub fn of_kernel(map: &MapData) -> Result<Self, MapError> {
        let info = map.info()?;
        Ok(Self {
            kind: info.map_type()? as u32,
            key_size: info.key_size(),
            value_size: info.value_size(),
            max_entries: info.max_entries(),
            flags: info.map_flags(),
        })
    }
}

/// The results of a load, in addition to what is pinned.
pub struct Loaded {
    /// The log of a debug object.
    pub log: Option<DebugLog>,
    /// The highest mode that this kernel allows, if it does not allow all.
    pub limit: Option<KernelLimit>,
    /// The size of the tables of known flows.
    pub flow_table: FlowTable,
    /// The refusal of programs that read kernel memory: others were loaded in place of them.
    pub refused: Option<DatapathError>,
}

/// Loads these programs of the embedded object and pins them, over maps that are adopted or
/// created: a previous agent's set that lacks a map is completed, and pins of other programs are
/// removed. A debug object comes with its log. `flows` is the number of flows of each family to
/// hold; if it is `None`, the available memory decides. The tables hold fewer if the kernel lacks
/// the memory.
///
/// A kernel that lets no program read its memory (lockdown) refuses programs that do. In that
/// memory mode `fast` finds the conntrack state of a packet, which the return direction can prove
/// too, so the programs are loaded without these reads.
pub fn load(
    pins: &PinRoot,
    programs: &[Program],
    subnets: Subnets,
    flows: Option<u32>,
) -> Result<Loaded, DatapathError> {
    let families: Vec<Family> = subnets.families().collect();
    let mut flow_table = FlowTable::plan(flows, &families);
    loop {
        match load_sized(pins, programs, subnets, &families, &flow_table) {
            Err(error) if error.is_out_of_memory() => {
                let Some(smaller) = flow_table.halved() else {
                    return Err(error);
                };
                tracing::warn!(
                    error = chain(&error),
                    flows = smaller.flows,
                    "the kernel has no memory for {} flows of each family; trying fewer",
                    flow_table.flows
                );
                flow_table = smaller;
            }
            other => return other,
        }
    }
}

/// The same, with tables of this size.
fn load_sized(
    pins: &PinRoot,
    programs: &[Program],
    subnets: Subnets,
    families: &[Family],
    flow_table: &FlowTable,
) -> Result<Loaded, DatapathError> {
    let capacities = subnets.capacities(flow_table.flows)?;
    let record = || LoadRecord::of(pins, programs, &capacities);
    if record().is_some_and(|record| LoadRecord::pinned(pins) == Some(record)) {
        tracing::debug!("adopted the pinned programs");
        return Ok(Loaded {
            log: None,
            limit: None,
            flow_table: flow_table.clone(),
            refused: None,
        });
    }
    let layout = kernel_types::layout();
    if layout.nfct == 0 {
        tracing::info!(
            "this kernel does not show its types: the reverse flow of each connection has to prove \
             its state"
        );
    }
    let load = |layout| {
        load_reading(
            pins,
            programs,
            &capacities,
            flow_table.may_be_too_large(),
            families,
            layout,
        )
    };
    let (room, log, refused) = load_by_layout(layout, load)?;
    // Neither a limit nor the reader of a log is pinned, and what was refused may be taken next
    // time.
    if refused.is_none()
        && room.limit.is_none()
        && log.is_none()
        && let Some(Err(error)) = record().map(|record| record.pin(pins))
    {
        tracing::info!(
            error = chain(&error),
            "the next start will load the programs again"
        );
    }
    Ok(Loaded {
        log,
        limit: room.limit,
        flow_table: flow_table.clone(),
        refused,
    })
}

/// Loads programs that read kernel memory, or others if the kernel refuses these or they need not
/// read all of it. The last value is the refusal.
fn load_by_layout(
    layout: KernelLayout,
    load: impl Fn(KernelLayout) -> Result<(Room, Option<DebugLog>), DatapathError>,
) -> Result<(Room, Option<DebugLog>, Option<DatapathError>), DatapathError> {
    let mut refused = None;
    let (room, log) = match load(layout) {
        Err(error @ DatapathError::Refused { .. })
            if layout != KernelLayout::UNKNOWN && !error.is_out_of_memory() =>
        {
            tracing::warn!(
                error = chain(&error),
                "loading programs that do not read kernel memory"
            );
            kernel_types::refuse();
            refused = Some(error);
            load(KernelLayout::UNKNOWN)?
        }
        Ok((
            Room {
                on_task_stack: false,
                ..
            },
            _,
        )) if layout.stack != 0 => {
            tracing::info!(
                "this kernel gives programs a stack of their own: every new flow waits for a check"
            );
            load(KernelLayout { stack: 0, ..layout })?
        }
        other => other?,
    };
    Ok((room, log, refused))
}

/// The same, with programs that read what is known of the kernel's layout. With `needs_headroom`
/// maps are made only if they leave room for the load.
fn load_reading(
    pins: &PinRoot,
    programs: &[Program],
    capacities: &[Capacity],
    needs_headroom: bool,
    families: &[Family],
    layout: KernelLayout,
) -> Result<(Room, Option<DebugLog>), DatapathError> {
    let bytes = object::bytes()?;
    pins.prepare()?;
    let object = aya_obj::Object::parse(&bytes)?;
    let mut loader = loader();
    let on = families_of(families);
    let drops = kernel_types::drop_layout();
    loader
        .override_global(LAYOUT, &layout, true)
        .override_global(FAMILIES, &on, true);
    loader.override_global(kernel_drops::LAYOUT, &drops, true);
    for &(name, capacity) in capacities {
        loader.map_max_entries(name, capacity);
    }
    for name in ALL {
        let map = object
            .maps
            .get(in_object(name))
            .ok_or(DatapathError::Missing { kind: "map", name })?;
        let sized = capacities.iter().find(|(sized, _)| *sized == name);
        let max_entries = sized.map_or_else(|| map.max_entries(), |(_, capacity)| *capacity);
        make_way(&pins.map(name), name, Shape::of_object(map, max_entries))?;
        loader.map_pin_path(in_object(name), pins.map(name));
    }
    // The loader reads the bytes once more, and each reading takes megabytes.
    drop(object);
    let headroom = if needs_headroom {
        Some(Headroom::take()?)
    } else {
        None
    };
    let mut ebpf = loader.load(&bytes)?;
    drop(headroom);
    for program in Program::ALL {
        if !programs.contains(&program) {
            pins::remove(&pins.program(program))?;
            continue;
        }
        let loaded = classifier::load(&mut ebpf, program.name())?;
        pins::replace(&pins.program(program), |path| loaded.pin(path))?;
    }
    let counter: &mut RawTracePoint = ebpf
        .program_mut(COUNT_POLLS)
        .ok_or(DatapathError::Missing {
            kind: "program",
            name: COUNT_POLLS,
        })?
        .try_into()
        .map_err(DatapathError::program(COUNT_POLLS))?;
    interrupted::retry(|| counter.load()).map_err(DatapathError::program(COUNT_POLLS))?;
    pins::replace(&pins.poll_counter(), |path| counter.pin(path))?;
    kernel_drops::load(&mut ebpf, pins)?;
    let finder = classifier::load(&mut ebpf, FIND_JUDGES)?;
    pins::replace(&pins.judge_finder(), |path| finder.pin(path))?;
    Ok((room::ask(&mut ebpf, families)?, DebugLog::of(&mut ebpf)?))
}

/// The families as the programs know them.
pub(crate) fn families_of(families: &[Family]) -> Families {
    let is_on = |family| u32::from(families.contains(&family));
    Families {
        v4: is_on(Family::V4),
        v6: is_on(Family::V6),
    }
}

/// A loader of the object, which needs the kernel's layout as [`LAYOUT`].
pub(crate) fn loader<'a>() -> EbpfLoader<'a> {
    let mut loader = EbpfLoader::new();
    // Nothing in the object is relocated by the kernel's own types, which are many megabytes in
    // memory.
    loader.btf(None);
    loader
}

/// Unlinks a pinned map of another shape, so that the loader makes a new one.
fn make_way(path: &Path, name: &str, wanted: Shape) -> Result<(), DatapathError> {
    let failed = |source| DatapathError::OpenPin {
        path: path.to_owned(),
        source,
    };
    let found = match MapData::from_pin(path).map_err(failed) {
        Ok(map) => Shape::of_kernel(&map).map_err(failed)?,
        Err(error) if error.is_absent() => return Ok(()),
        Err(error) => return Err(error),
    };
    if found == wanted {
        tracing::debug!(map = name, "adopted the pinned map");
        return Ok(());
    }
    tracing::info!(
        map = name,
        ?found,
        ?wanted,
        "the pinned map has another shape and is replaced"
    );
    pins::remove(path)
}
