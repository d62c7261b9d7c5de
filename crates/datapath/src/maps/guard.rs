//! Typed views of the guard's maps: its modes, the peers that may send from elsewhere, and the
//! sources it found fault with.

use aya::maps::{HashMap, MapData};
use flannel_common::{
    abi::{
        guard::{Checks, DeviceKey, GuardMode, GuardWord, Violation},
        maps::{GUARD, NAT_VTEPS, VIOLATIONS},
    },
    packet::addr::Addr,
};

use crate::{
    DatapathError, PinRoot,
    maps::{
        pinned_map::{from_pin, remove},
        word::SharedWord,
    },
};

/// The `GUARD` map. Agent and CLI write it, as they do the mode ([`crate::maps::word`]).
pub struct GuardMap(SharedWord<GuardWord>);

impl GuardMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        SharedWord::open(pins, GUARD).map(Self)
    }

    /// The word.
    pub fn get(&self) -> Result<GuardWord, DatapathError> {
        self.0.get()
    }

    /// Writes the word, if it differs from what is there.
    pub fn set(
        &mut self,
        in_force: Checks<GuardMode>,
        choice: Checks<Option<GuardMode>>,
    ) -> Result<(), DatapathError> {
        self.0
            .update(|_| GuardWord::new(in_force, choice))
            .map(drop)
    }

    /// Replaces the word by what the operator makes of it, who waits for no process that was
    /// stopped while it wrote. Returns the reason why the word may not stay, if there is one.
    pub fn change_anyway(
        &mut self,
        change: impl FnOnce(GuardWord) -> GuardWord,
    ) -> Result<Option<DatapathError>, DatapathError> {
        self.0.update_anyway(change)
    }

    /// Writes the modes that were decided on when the operator's choice was `choice`. Returns
    /// false, without a write, if the operator has made another choice since.
    pub fn follow(
        &mut self,
        in_force: Checks<GuardMode>,
        choice: Checks<Option<GuardMode>>,
    ) -> Result<bool, DatapathError> {
        let mut is_current = true;
        self.0.update(|word| {
            is_current = word.choice() == choice;
            if is_current {
                GuardWord::new(in_force, choice)
            } else {
                word
            }
        })?;
        Ok(is_current)
    }
}

/// The `NAT_VTEPS` map.
pub struct ElsewhereMap(HashMap<MapData, DeviceKey, u32>);

impl ElsewhereMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, NAT_VTEPS)?)
            .map(Self)
            .map_err(DatapathError::map(NAT_VTEPS))
    }

    /// Every device.
    pub fn keys(&self) -> impl Iterator<Item = Result<DeviceKey, DatapathError>> + '_ {
        self.0
            .keys()
            .map(|key| key.map_err(DatapathError::map(NAT_VTEPS)))
    }

    /// Adds a device.
    pub fn add(&mut self, key: DeviceKey) -> Result<(), DatapathError> {
        self.0
            .insert(key, 0, 0)
            .map_err(DatapathError::map(NAT_VTEPS))
    }

    /// Removes a device; a missing device is not an error.
    pub fn remove(&mut self, key: DeviceKey) -> Result<(), DatapathError> {
        remove(&mut self.0, &key, NAT_VTEPS)
    }
}

/// The `VIOLATIONS` map.
pub struct ViolationMap(HashMap<MapData, Addr, Violation>);

impl ViolationMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, VIOLATIONS)?)
            .map(Self)
            .map_err(DatapathError::map(VIOLATIONS))
    }

    /// Every source that the programs remember. A source that is evicted during the iteration may
    /// end it early.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Addr, Violation), DatapathError>> + '_ {
        self.0
            .iter()
            .map(|entry| entry.map_err(DatapathError::map(VIOLATIONS)))
    }
}
