//! The agent's pinned maps and programs, as the kernel sees them.

use std::path::Path;

use anyhow::{Context as _, Result};
use aya::{
    maps::{Array, Map, MapData},
    programs::ProgramInfo,
};
use flannel_common::abi::{
    maps::{MONITOR_DEADLINE, ONLY},
    program::Program,
};

use flannel_datapath::{PinRoot, maps::flows::write_helper_ports};

use crate::Host;

/// The default pin root.
pub const ROOT: &str = "/sys/fs/bpf/flannel";
/// The directory in which an agent with the default pin root pins its maps.
pub const MAPS: &str = "/sys/fs/bpf/flannel/v2/maps";
/// The directory in which it pins its programs.
const PROGRAMS: &str = "/sys/fs/bpf/flannel/v2/programs";

/// The identity of a map, and its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedMap {
    /// The kernel's number of it.
    pub id: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Capacity.
    pub max_entries: u32,
}

/// A map pinned by an agent, under the default pin root.
pub fn map(host: &Host, name: &str) -> Result<PinnedMap> {
    host.enter(|| {
        let info = MapData::from_pin(Path::new(MAPS).join(name))
            .and_then(|map| map.info())
            .context(name.to_owned())?;
        Ok(PinnedMap {
            id: info.id(),
            value_size: info.value_size(),
            max_entries: info.max_entries(),
        })
    })?
}

/// The runs of a program while the kernel kept statistics, and their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Runs.
    pub runs: u64,
    /// Nanoseconds of all runs.
    pub nanoseconds: u64,
}

/// The kernel's statistics of a program pinned by an agent, under the default pin root; zero for
/// one that its backend does not need.
pub fn run_time(host: &Host, program: Program) -> Result<RunTime> {
    host.enter(|| {
        let pin = Path::new(PROGRAMS).join(program.name());
        if !pin.exists() {
            return Ok(RunTime::default());
        }
        let info = ProgramInfo::from_pin(pin).context(program.name())?;
        Ok(RunTime {
            runs: info.run_count(),
            nanoseconds: u64::try_from(info.run_time().as_nanos())?,
        })
    })?
}

/// The ids of all maps of the datapath, by name.
pub fn map_ids(host: &Host) -> Result<Vec<(&'static str, u32)>> {
    flannel_common::abi::maps::ALL
        .into_iter()
        .map(|name| Ok((name, map(host, name)?.id)))
        .collect()
}

/// Has the programs of an agent learn no flow of these ports and of no others, as on a kernel that
/// does not show which connections have a helper of conntrack.
pub fn learn_none_of_ports(host: &Host, ports: &[u16]) -> Result<()> {
    host.enter(|| write_helper_ports(&PinRoot::new(Path::new(ROOT)), ports))?
        .context("the ports of helpers")
}

/// Pins an array of values of `T` in place of an agent's map.
pub fn replace_by_array<T: aya::Pod>(
    host: &Host,
    name: &str,
    max_entries: u32,
) -> Result<PinnedMap> {
    let path = Path::new(MAPS).join(name);
    host.enter(|| -> Result<()> {
        let array = Array::<MapData, T>::create(max_entries, 0).context("an array")?;
        std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        array.pin(&path).with_context(|| path.display().to_string())
    })??;
    map(host, name)
}

/// Returns the deadline of events for a monitor, `CLOCK_MONOTONIC` in nanoseconds; 0 if the
/// programs write none.
pub fn monitor_lease(host: &Host) -> Result<u64> {
    host.enter(|| -> Result<u64> {
        let map = MapData::from_pin(Path::new(MAPS).join(MONITOR_DEADLINE))
            .and_then(Map::from_map_data)
            .context(MONITOR_DEADLINE)?;
        Ok(Array::<_, u64>::try_from(map)?.get(&ONLY, 0)?)
    })?
}
