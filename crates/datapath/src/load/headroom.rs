//! Memory that a load needs besides its maps.
//!
//! The kernel refuses a map for which a memory limit leaves no room (`ENOMEM`). It does not refuse
//! the memory that its verifier takes, nor that of the agent: beyond the limit it ends the process,
//! which would start again with the same tables. So the agent makes tables that may be too large
//! while a map of this size takes the memory that the rest needs.

use aya::maps::{Array, MapData};

use crate::DatapathError;

/// Bytes: up to 32 MiB of the verifier (`from_underlay` on Linux 6.18), and as many of the loader.
const BYTES: u32 = 64 << 20;
/// The name in messages.
const NAME: &str = "headroom";

/// Memory that is taken, until it is dropped.
pub(crate) struct Headroom {
    _map: Array<MapData, u64>,
}

impl Headroom {
    /// Takes it. Fails if the kernel has no room.
    pub(crate) fn take() -> Result<Self, DatapathError> {
        let map = Array::create(BYTES / 8, 0).map_err(DatapathError::map(NAME))?;
        Ok(Self { _map: map })
    }
}
