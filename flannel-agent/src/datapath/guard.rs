//! Typed views of the guard's maps: its modes, the peers that may send from elsewhere, and the sources it found fault with.

use aya::maps::{Array, HashMap, MapData};
use flannel_common::{
    addr::Addr,
    guard::{Checks, DeviceKey, GuardMode, GuardWord, Suspect},
    maps::{ELSEWHERE, GUARD, ONLY, SUSPECTS},
};

use crate::datapath::{
    DatapathError, PinRoot,
    maps::{from_pin, remove},
};

/// The `GUARD` map.
pub struct GuardMap(Array<MapData, GuardWord>);

impl GuardMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        Array::try_from(from_pin(pins, GUARD)?).map(Self).map_err(DatapathError::map(GUARD))
    }

    /// The word.
    pub fn get(&self) -> Result<GuardWord, DatapathError> {
        self.0.get(&ONLY, 0).map_err(DatapathError::map(GUARD))
    }

    /// Writes the word, if it differs from what is there.
    pub fn set(&mut self, in_force: Checks<GuardMode>, choice: Checks<Option<GuardMode>>) -> Result<(), DatapathError> {
        let word = GuardWord::new(in_force, choice);
        if self.get()? == word { Ok(()) } else { self.0.set(ONLY, word, 0).map_err(DatapathError::map(GUARD)) }
    }
}

/// The `ELSEWHERE` map.
pub struct ElsewhereMap(HashMap<MapData, DeviceKey, u32>);

impl ElsewhereMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, ELSEWHERE)?).map(Self).map_err(DatapathError::map(ELSEWHERE))
    }

    /// Every device.
    pub fn keys(&self) -> impl Iterator<Item = Result<DeviceKey, DatapathError>> + '_ {
        self.0.keys().map(|key| key.map_err(DatapathError::map(ELSEWHERE)))
    }

    /// Adds a device.
    pub fn add(&mut self, key: DeviceKey) -> Result<(), DatapathError> {
        self.0.insert(key, 0, 0).map_err(DatapathError::map(ELSEWHERE))
    }

    /// Removes a device; one that is not there is no error.
    pub fn remove(&mut self, key: DeviceKey) -> Result<(), DatapathError> {
        remove(&mut self.0, &key, ELSEWHERE)
    }
}

/// The `SUSPECTS` map.
pub struct SuspectMap(HashMap<MapData, Addr, Suspect>);

impl SuspectMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, SUSPECTS)?).map(Self).map_err(DatapathError::map(SUSPECTS))
    }

    /// Every source the programs remember. One that is pushed out meanwhile may end the list early.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Addr, Suspect), DatapathError>> + '_ {
        self.0.iter().map(|entry| entry.map_err(DatapathError::map(SUSPECTS)))
    }
}
