//! The record of the last load, in a pinned map next to the programs: an agent that finds what it
//! would load itself takes that over, without a second of work for the verifier.
//!
//! It is a digest of all that a load depends on, and of the kernel's numbers of what was pinned
//! then. The kernel gives no number twice before it is booted again (`bpf_prog_alloc_id()` in
//! [kernel/bpf/syscall.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/syscall.c)), and the pins are gone
//! by then. Its layout is the same as long as the pins exist, so in place of it the record has
//! whether the agent was allowed to read it.

use aya::{
    maps::{Array, Map, MapData, MapInfo},
    programs::ProgramInfo,
};
use flannel_common::abi::{maps::ALL, program::Program};
use flannel_host::kernel_types;
use sha2::{Digest as _, Sha256};

use crate::{
    DatapathError, PinRoot,
    load::{
        capacities::{Capacity, Subnets},
        object,
    },
    pins,
};

/// The name of the map in messages.
const NAME: &str = "load_record";

/// A digest of a load and of what it pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadRecord([u8; 32]);

impl LoadRecord {
    /// The record of a load of these programs that left what is pinned now; `None` if something is
    /// not pinned.
    pub(crate) fn of(
        pins: &PinRoot,
        programs: &[Program],
        capacities: &[Capacity],
    ) -> Option<Self> {
        let programs: Vec<Program> = Program::ALL
            .into_iter()
            .filter(|program| programs.contains(program))
            .collect();
        let id = |path| ProgramInfo::from_pin(path).map(|info| info.id()).ok();
        let pinned = programs
            .iter()
            .map(|program| pins.program(*program))
            .chain([pins.poll_counter(), pins.judge_finder()]);
        let ids: Vec<u32> = pinned.map(id).collect::<Option<_>>()?;
        let drop_reporter = id(pins.drop_reporter());
        let map = |name| MapInfo::from_pin(pins.map(name)).map(|info| info.id()).ok();
        let maps: Vec<u32> = ALL.into_iter().map(map).collect::<Option<_>>()?;
        let mut digest = Sha256::new();
        digest.update(object::compressed());
        let version = env!("CARGO_PKG_VERSION");
        let shows_types = kernel_types::is_readable();
        digest.update(format!(
            "{version} {shows_types} {capacities:?} {programs:?} {ids:?} {drop_reporter:?} {maps:?}"
        ));
        Some(Self(digest.finalize().into()))
    }

    /// The pinned programs, if a load by this very build has left them: this kernel has accepted
    /// them. Empty if another build has, or if none are pinned.
    pub(crate) fn programs_of_this_build(pins: &PinRoot) -> Vec<Program> {
        let is_pinned = |program: &Program| pins.program(*program).exists();
        let programs: Vec<Program> = Program::ALL.into_iter().filter(is_pinned).collect();
        let record =
            Self::capacities(pins).and_then(|capacities| Self::of(pins, &programs, &capacities));
        if record.is_some() && record == Self::pinned(pins) {
            programs
        } else {
            Vec::new()
        }
    }

    /// The capacities of the pinned maps that a load chooses.
    fn capacities(pins: &PinRoot) -> Option<Vec<Capacity>> {
        let chosen = Subnets::default().capacities(0).ok()?;
        let pinned = |(name, _)| {
            MapInfo::from_pin(pins.map(name))
                .map(|info| (name, info.max_entries()))
                .ok()
        };
        chosen.into_iter().map(pinned).collect()
    }

    /// The record that is pinned, if there is one.
    pub(crate) fn pinned(pins: &PinRoot) -> Option<Self> {
        let map = MapData::from_pin(pins.load_record())
            .and_then(Map::from_map_data)
            .ok()?;
        Array::<_, [u8; 32]>::try_from(map)
            .ok()?
            .get(&0, 0)
            .map(Self)
            .ok()
    }

    /// Pins it in place of an earlier one.
    pub(crate) fn pin(self, pins: &PinRoot) -> Result<(), DatapathError> {
        let mut map = Array::<MapData, [u8; 32]>::create(1, 0).map_err(DatapathError::map(NAME))?;
        map.set(0, self.0, 0).map_err(DatapathError::map(NAME))?;
        pins::replace(&pins.load_record(), |path| map.pin(path))
    }
}
