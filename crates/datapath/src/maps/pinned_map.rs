//! Access to pinned maps, for their typed views.

use std::io;

use aya::{
    Pod,
    maps::{HashMap, Map, MapData, MapError},
};

use crate::{DatapathError, PinRoot};

/// Opens a map by its pin.
pub(crate) fn from_pin(pins: &PinRoot, name: &str) -> Result<Map, DatapathError> {
    Map::from_map_data(data_from_pin(pins, name)?).map_err(|source| DatapathError::OpenPin {
        path: pins.map(name),
        source,
    })
}

/// The same, without a look at its kind.
pub(crate) fn data_from_pin(pins: &PinRoot, name: &str) -> Result<MapData, DatapathError> {
    let path = pins.map(name);
    match MapData::from_pin(&path).map_err(|source| DatapathError::OpenPin { path, source }) {
        Err(error) if error.is_absent() => Err(pins.not_pinned()),
        other => other,
    }
}

/// Removes an element of the map of this name; a missing element is not an error.
pub(crate) fn remove<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: &K,
    name: &'static str,
) -> Result<(), DatapathError> {
    match map.remove(key) {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        other => other.map_err(DatapathError::map(name)),
    }
}
