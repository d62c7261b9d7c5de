//! Access to pinned maps, for their typed views.

use std::io;

use aya::{
    Pod,
    maps::{HashMap, Map, MapData, MapError},
};

use crate::{DatapathError, PinRoot};

/// Opens a map by its pin.
pub(super) fn from_pin(pins: &PinRoot, name: &str) -> Result<Map, DatapathError> {
    let path = pins.map(name);
    let opened = MapData::from_pin(&path).and_then(Map::from_map_data);
    match opened.map_err(|source| DatapathError::OpenPin { path, source }) {
        Err(error) if error.is_absent() => Err(DatapathError::not_pinned(pins)),
        other => other,
    }
}

/// Removes an element of the map of this name; a missing element is not an error.
pub(super) fn remove<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: &K,
    name: &'static str,
) -> Result<(), DatapathError> {
    match map.remove(key) {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(DatapathError::map(name)),
    }
}
