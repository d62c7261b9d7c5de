//! Brings the object into the kernel: adopts or replaces the pinned maps, loads the programs, pins them.
//!
//! aya's loader takes an existing pin as it is, of whatever shape. So every pin is opened and compared here first; one
//! that differs is unlinked (programs that still run keep their own reference) and made anew.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    EbpfLoader,
    maps::{MapData, MapError},
    pin::PinError,
    programs::{RawTracePoint, SchedClassifier},
    util::nr_cpus,
};
use flannel_common::{
    kernel::KernelLayout,
    maps::{ALL, FLOWS, FLOWS_MAX, FLOWS6, NOTES, NOTES6, PEERS, PEERS_MAX, PEERS6, in_object},
    note::{CPUS_MAX, SLOTS_PER_CPU},
    program::{COUNT_POLLS, Program},
};

use crate::{
    datapath::{
        DatapathError, PinRoot, btf,
        debug_log::DebugLog,
        object,
        room::{self, Limit},
    },
    family::Family,
};

/// The programs of this build.
pub(super) const PROGRAMS: [Program; Program::COUNT as usize] = Program::ALL;

/// What two maps must have in common to be the same map.
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
    pub(super) fn of_object(map: &aya_obj::Map, max_entries: u32) -> Self {
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

/// A map's name and how many elements it holds.
type Capacity = (&'static str, u32);

/// How many subnets the network of each family has; 0 where the family is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subnets {
    /// Of the IPv4 network.
    pub v4: u64,
    /// Of the IPv6 network.
    pub v6: u64,
}

impl Subnets {
    /// The families that are on.
    fn families(self) -> impl Iterator<Item = Family> {
        let on = [(Family::V4, self.v4), (Family::V6, self.v6)];
        on.into_iter().filter(|(_, subnets)| *subnets > 0).map(|(family, _)| family)
    }

    /// The capacities of the maps of each family, `flows` of known flows. What belongs to one that is off has one element: none cannot be.
    fn capacities(self, flows: u32) -> Result<[Capacity; 6], DatapathError> {
        let peers = |family, subnets| match u32::try_from(subnets) {
            Ok(capacity) if capacity <= PEERS_MAX => Ok(capacity.max(1)),
            _ => Err(DatapathError::TooManySubnets { family, subnets }),
        };
        let if_on = |subnets, capacity| if subnets == 0 { 1 } else { capacity };
        let notes = note_slots();
        Ok([
            (PEERS, peers(Family::V4, self.v4)?),
            (PEERS6, peers(Family::V6, self.v6)?),
            (NOTES, if_on(self.v4, notes)),
            (NOTES6, if_on(self.v6, notes)),
            (FLOWS, if_on(self.v4, flows)),
            (FLOWS6, if_on(self.v6, flows)),
        ])
    }
}

/// What was loaded, beside what is pinned.
pub struct Loaded {
    /// The log of a debug object.
    pub log: Option<DebugLog>,
    /// What this kernel does not do for the programs.
    pub limit: Option<Limit>,
}

/// Loads the embedded object and pins its programs, over maps that are adopted or made: an older agent's set that lacks a
/// map is completed. A debug object comes with its log. `flows` is how many flows of each family to hold; by the machine's memory
/// if not given.
///
/// A kernel that lets nobody read its memory (lockdown) refuses programs that do. What they read there tells mode `fast`
/// what conntrack thinks of a packet, which the way back can prove too, so they are loaded without.
pub fn load(pins: &PinRoot, subnets: Subnets, flows: Option<u32>) -> Result<Loaded, DatapathError> {
    let capacities = subnets.capacities(flows.unwrap_or_else(|| flow_capacity(memory())))?;
    let layout = btf::kernel_layout();
    let families: Vec<Family> = subnets.families().collect();
    match load_reading(pins, &capacities, &families, layout) {
        Err(error @ DatapathError::Refused { .. }) if layout != KernelLayout::UNKNOWN => {
            tracing::warn!(%error, "loading programs that do not read kernel memory");
            load_reading(pins, &capacities, &families, KernelLayout::UNKNOWN)
        }
        other => other,
    }
}

/// The same, with programs that read what is known of the kernel's layout.
fn load_reading(
    pins: &PinRoot,
    capacities: &[Capacity],
    families: &[Family],
    layout: KernelLayout,
) -> Result<Loaded, DatapathError> {
    let bytes = object::bytes()?;
    pins.prepare()?;
    let object = aya_obj::Object::parse(&bytes)?;
    let mut loader = loader(&layout);
    for &(name, capacity) in capacities {
        loader.map_max_entries(name, capacity);
    }
    for name in ALL {
        let map = object.maps.get(in_object(name)).ok_or(DatapathError::Missing { kind: "map", name })?;
        let sized = capacities.iter().find(|(sized, _)| *sized == name);
        let max_entries = sized.map_or_else(|| map.max_entries(), |(_, capacity)| *capacity);
        make_way(&pins.map(name), name, Shape::of_object(map, max_entries))?;
        loader.map_pin_path(in_object(name), pins.map(name));
    }
    let mut ebpf = loader.load(&bytes)?;
    for program in PROGRAMS {
        let name = program.name();
        let loaded: &mut SchedClassifier = ebpf
            .program_mut(name)
            .ok_or(DatapathError::Missing { kind: "program", name })?
            .try_into()
            .map_err(DatapathError::program(name))?;
        loaded.load().map_err(DatapathError::program(name))?;
        pin(&pins.program(program), |path| loaded.pin(path))?;
    }
    let counter: &mut RawTracePoint = ebpf
        .program_mut(COUNT_POLLS)
        .ok_or(DatapathError::Missing { kind: "program", name: COUNT_POLLS })?
        .try_into()
        .map_err(DatapathError::program(COUNT_POLLS))?;
    counter.load().map_err(DatapathError::program(COUNT_POLLS))?;
    pin(&pins.poll_counter(), |path| counter.pin(path))?;
    Ok(Loaded { limit: room::ask(&mut ebpf, families)?, log: DebugLog::of(&mut ebpf)? })
}

/// A loader of the object for a kernel of this layout.
pub(super) fn loader(layout: &KernelLayout) -> EbpfLoader<'_> {
    let mut loader = EbpfLoader::new();
    // Nothing in the object is relocated by the kernel's own types, which are many megabytes in memory.
    loader.btf(None);
    loader.override_global("KERNEL", layout, true);
    loader
}

/// Unlinks a pinned map of another shape, so that the loader makes a new one.
fn make_way(path: &Path, name: &str, wanted: Shape) -> Result<(), DatapathError> {
    let failed = |source| DatapathError::OpenPin { path: path.to_owned(), source };
    let found = match MapData::from_pin(path).map_err(failed) {
        Ok(map) => Shape::of_kernel(&map).map_err(failed)?,
        Err(error) if error.is_absent() => return Ok(()),
        Err(error) => return Err(error),
    };
    if found == wanted {
        tracing::debug!(map = name, "adopted the pinned map");
        return Ok(());
    }
    tracing::info!(map = name, ?found, ?wanted, "the pinned map has another shape and is replaced");
    fs::remove_file(path).map_err(|source| DatapathError::ChangePin {
        action: "replace",
        path: path.to_owned(),
        source,
    })
}

/// Pins a program in place of the one that may be there, without a moment in which there is none.
fn pin(path: &Path, pin: impl FnOnce(&Path) -> Result<(), PinError>) -> Result<(), DatapathError> {
    // bpffs reserves names with a dot.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("-new");
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DatapathError::ChangePin { action: "remove", path: fresh, source: error });
        }
        _ => {}
    }
    pin(&fresh).map_err(|source| DatapathError::Pin { path: fresh.clone(), source })?;
    fs::rename(&fresh, path).map_err(|source| DatapathError::ChangePin {
        action: "rename",
        path: path.to_owned(),
        source,
    })
}

/// Slots for notes on every CPU there may be.
pub(super) fn note_slots() -> u32 {
    let cpus = nr_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(CPUS_MAX);
    cpus.min(CPUS_MAX) * SLOTS_PER_CPU
}

/// The machine's memory, in bytes; none if it cannot be read.
fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Flows of each family to hold: a thousandth of the memory, between 3 and 26 MB. The maps take it when they are made, in every
/// mode: smaller ones for the other modes would make the switch a reload, which only a living agent could do.
fn flow_capacity(memory: Option<u64>) -> u32 {
    const FLOW_BYTES: u64 = 200;
    let flows = memory.unwrap_or(0) / 1000 / FLOW_BYTES;
    u32::try_from(flows).unwrap_or(FLOWS_MAX).clamp(FLOWS_MAX / 8, FLOWS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flow_table_follows_the_memory() {
        assert_eq!(flow_capacity(None), 16_384);
        assert_eq!(flow_capacity(Some(1 << 30)), 16_384);
        assert_eq!(flow_capacity(Some(8 << 30)), 42_949);
        assert_eq!(flow_capacity(Some(1 << 40)), 131_072);
    }
}
