//! Typed views of the pinned maps, for the agent and the CLI alike.
//!
//! Everything is opened from its pin, where aya compares our types with the kernel's sizes. Writers
//! follow the protocol of `flannel_common::abi::peer`: invalid word, body, valid word.

pub(crate) mod announcements;
pub(crate) mod batch;
pub mod ecmp_paths;
pub mod flow_hints;
pub mod flows;
pub mod guard;
pub mod kernel_drops;
pub mod peers;
pub(crate) mod pinned_map;
pub(crate) mod pinned_peer;
pub mod room;
pub mod traffic;
pub mod word;

use std::collections::BTreeSet;

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use flannel_common::{
    abi::{
        entry_state::EntryState,
        maps::{CONFIG, FLOWS, FLOWS6, MODE, ONLY, PEERS, PEERS6, STATS, VTEPS},
        mode::{Mode, ModeWord},
        node::NodeConfig,
        peer::{PeerEntry, VtepEntry},
        program::Program,
        reason::{Reason, Verdict},
        stats::{Counter, slot},
        tick::Tick,
        traffic::PeerTraffic,
    },
    packet::addr::Addr,
};
use flannel_host::family::Family;

use crate::{
    DatapathError, PinRoot,
    maps::{
        batch::BatchMap,
        ecmp_paths::EcmpPathMap,
        flows::{FastMap, FlowMap, PodMap},
        guard::{ElsewhereMap, GuardMap, ViolationMap},
        pinned_map::{from_pin, remove},
        traffic::{Slots, TrafficMap},
        word::SharedWord,
    },
};

/// All maps of one agent.
pub struct Maps {
    /// Peers by IPv4 subnet number.
    pub peers: PeerMap,
    /// Peers by IPv6 subnet number.
    pub peers6: PeerMap,
    /// The ECMP paths of peers that have several.
    pub ecmp_paths: EcmpPathMap,
    /// Peers by outer source.
    pub vteps: VtepMap,
    /// The mode word.
    pub mode: ModeMap,
    /// The node's own data.
    pub config: ConfigMap,
    /// The counters.
    pub stats: StatsMap,
    /// The settings of mode `fast`.
    pub fast: FastMap,
    /// The IPv4 flows that mode `fast` has learned.
    pub flows: FlowMap<[u32; 1]>,
    /// The IPv6 flows that mode `fast` has learned.
    pub flows6: FlowMap<[u32; 4]>,
    /// The pods that mode `fast` may take packets from and put packets into.
    pub pods: PodMap,
    /// The modes of the guard.
    pub guard: GuardMap,
    /// Peers whose packets may come from another address than theirs.
    pub elsewhere: ElsewhereMap,
    /// Sources the guard found fault with.
    pub suspects: ViolationMap,
}

impl Maps {
    /// Opens all of them.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        Ok(Self {
            peers: PeerMap::open(pins, Family::V4)?,
            peers6: PeerMap::open(pins, Family::V6)?,
            ecmp_paths: EcmpPathMap::open(pins)?,
            vteps: VtepMap::open(pins)?,
            mode: ModeMap::open(pins)?,
            config: ConfigMap::open(pins)?,
            stats: StatsMap::open(pins)?,
            fast: FastMap::open(pins)?,
            flows: FlowMap::open(pins, FLOWS)?,
            flows6: FlowMap::open(pins, FLOWS6)?,
            pods: PodMap::open(pins)?,
            guard: GuardMap::open(pins)?,
            elsewhere: ElsewhereMap::open(pins)?,
            suspects: ViolationMap::open(pins)?,
        })
    }
}

/// The `PEERS` or the `PEERS6` map.
pub struct PeerMap {
    name: &'static str,
    array: Array<MapData, PeerEntry>,
    all: BatchMap<u32, PeerEntry>,
    slots: Slots<PeerTraffic>,
}

impl PeerMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot, family: Family) -> Result<Self, DatapathError> {
        let name = match family {
            Family::V4 => PEERS,
            Family::V6 => PEERS6,
        };
        let array = Array::try_from(from_pin(pins, name)?).map_err(DatapathError::map(name))?;
        let all = BatchMap::open(pins, name)?;
        Ok(Self {
            name,
            array,
            all,
            slots: Slots::new(TrafficMap::of_peers(pins, family)?),
        })
    }

    /// Returns the number of subnets the map has room for.
    pub fn capacity(&self) -> u32 {
        self.array.len()
    }

    /// Every valid entry with its subnet number.
    pub fn entries(&self) -> impl Iterator<Item = Result<(u32, PeerEntry), DatapathError>> + '_ {
        let is_valid = |(_, entry): &(u32, PeerEntry)| entry.word.has(EntryState::VALID);
        self.all
            .entries()
            .filter(move |found| found.as_ref().map_or(true, is_valid))
    }

    /// One entry, valid or not.
    pub fn get(&self, index: u32) -> Result<PeerEntry, DatapathError> {
        self.array
            .get(&index, 0)
            .map_err(DatapathError::map(self.name))
    }

    /// Writes an entry, with `flags` in addition to `VALID`. This clears what the programs saw of
    /// the path. A new entry gets a slot for its traffic, another keeps the one it has.
    pub fn write(&mut self, index: u32, entry: PeerEntry, flags: u32) -> Result<(), DatapathError> {
        let old = self.invalidate(index)?;
        let word = EntryState::new(
            EntryState::VALID | flags,
            old.word.generation().wrapping_add(1),
        );
        let traffic = if old.traffic == 0 {
            self.take_slot()?
        } else {
            old.traffic
        };
        let entry = PeerEntry {
            word,
            traffic,
            ..entry.without_seen()
        };
        self.set(
            index,
            PeerEntry {
                word: word.invalid(),
                ..entry
            },
        )?;
        self.set(index, entry)
    }

    /// Removes an entry.
    pub fn remove(&mut self, index: u32) -> Result<(), DatapathError> {
        let old = self.invalidate(index)?;
        self.set(
            index,
            PeerEntry {
                word: EntryState::new(0, old.word.generation()),
                ..PeerEntry::default()
            },
        )?;
        self.slots()?.give_back(old.traffic.into());
        Ok(())
    }

    /// Returns the entry as it was.
    fn invalidate(&mut self, index: u32) -> Result<PeerEntry, DatapathError> {
        let old = self.get(index)?;
        if old.word.has(EntryState::VALID) {
            self.set(
                index,
                PeerEntry {
                    word: old.word.invalid(),
                    ..old
                },
            )?;
        }
        Ok(old)
    }

    fn take_slot(&mut self) -> Result<u16, DatapathError> {
        // More slots than such a number has are not possible.
        self.slots()?
            .take()
            .map(|slot| u16::try_from(slot).unwrap_or_default())
    }

    fn slots(&mut self) -> Result<&mut Slots<PeerTraffic>, DatapathError> {
        if !self.slots.are_known() {
            let taken = self.taken_slots()?;
            self.slots.set_taken(&taken);
        }
        Ok(&mut self.slots)
    }

    /// The slots of all entries, also of one that a killed agent was writing.
    fn taken_slots(&self) -> Result<BTreeSet<u32>, DatapathError> {
        (0..self.capacity())
            .map(|index| Ok(self.get(index)?.traffic.into()))
            .collect()
    }

    fn set(&mut self, index: u32, entry: PeerEntry) -> Result<(), DatapathError> {
        self.array
            .set(index, entry, 0)
            .map_err(DatapathError::map(self.name))
    }
}

/// The `VTEPS` map.
pub struct VtepMap(HashMap<MapData, Addr, VtepEntry>);

impl VtepMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, VTEPS)?)
            .map(Self)
            .map_err(DatapathError::map(VTEPS))
    }

    /// Every entry.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Addr, VtepEntry), DatapathError>> + '_ {
        self.0
            .iter()
            .map(|entry| entry.map_err(DatapathError::map(VTEPS)))
    }

    /// Writes an entry.
    pub fn write(&mut self, vtep: Addr, entry: VtepEntry) -> Result<(), DatapathError> {
        self.0
            .insert(vtep, entry, 0)
            .map_err(DatapathError::map(VTEPS))
    }

    /// Removes an entry; a missing entry is not an error.
    pub fn remove(&mut self, vtep: Addr) -> Result<(), DatapathError> {
        remove(&mut self.0, &vtep, VTEPS)
    }
}

/// The `MODE` map. Agent and CLI write it; no write of one is lost by that of the other
/// ([`crate::maps::word`]).
pub struct ModeMap(SharedWord<ModeWord>);

impl ModeMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        SharedWord::open(pins, MODE).map(Self)
    }

    /// The word.
    pub fn get(&self) -> Result<ModeWord, DatapathError> {
        self.0.get()
    }

    /// Writes the next word if mode or choice differ. Returns true if it was written.
    pub fn set(&mut self, mode: Mode, choice: Option<Mode>) -> Result<bool, DatapathError> {
        self.0.update(|word| with(word, mode, choice))
    }

    /// As [`Self::set`], for the operator, whose switch waits for no process that was stopped while
    /// it wrote. Returns the reason why the mode may not stay, if there is one.
    pub fn set_anyway(
        &mut self,
        mode: Mode,
        choice: Option<Mode>,
    ) -> Result<Option<DatapathError>, DatapathError> {
        self.0.update_anyway(|word| with(word, mode, choice))
    }

    /// Writes the mode that was decided on when the operator's choice was `choice`. Returns true if
    /// the mode changed, and `None`, without a write, if the operator has made another choice
    /// since.
    pub fn follow(
        &mut self,
        mode: Mode,
        choice: Option<Mode>,
    ) -> Result<Option<bool>, DatapathError> {
        let mut is_current = true;
        let changed = self.0.update(|word| {
            is_current = word.choice() == choice;
            if is_current {
                with(word, mode, choice)
            } else {
                word
            }
        })?;
        Ok(is_current.then_some(changed))
    }

    /// Begins a new generation: what mode `fast` has learned so far is not used any more.
    pub fn bump(&mut self) -> Result<(), DatapathError> {
        self.0
            .update(|word| word.next(word.mode(), word.choice()))
            .map(drop)
    }

    /// Begins a new epoch: packets of known flows may have bypassed the programs.
    pub fn begin_epoch(&mut self) -> Result<(), DatapathError> {
        self.0.update(ModeWord::next_epoch).map(drop)
    }
}

fn with(word: ModeWord, mode: Mode, choice: Option<Mode>) -> ModeWord {
    if word.mode() == mode && word.choice() == choice {
        word
    } else {
        word.next(mode, choice)
    }
}

/// The `CONFIG` map.
pub struct ConfigMap(Array<MapData, NodeConfig>);

impl ConfigMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        Array::try_from(from_pin(pins, CONFIG)?)
            .map(Self)
            .map_err(DatapathError::map(CONFIG))
    }

    /// The value.
    pub fn get(&self) -> Result<NodeConfig, DatapathError> {
        self.0.get(&ONLY, 0).map_err(DatapathError::map(CONFIG))
    }

    /// Writes the node's data if it differs from what is there; word and heartbeat are this
    /// function's. Returns true if it did.
    pub fn write(&mut self, wanted: NodeConfig, now_ns: u64) -> Result<bool, DatapathError> {
        let old = self.get()?;
        let wanted = NodeConfig {
            confirmed: old.confirmed,
            ..wanted
        };
        let same = NodeConfig {
            word: old.word,
            heartbeat_ns: old.heartbeat_ns,
            ..wanted
        };
        if same == old && old.word.has(EntryState::VALID) {
            return Ok(false);
        }
        let word = EntryState::new(EntryState::VALID, old.word.generation().wrapping_add(1));
        self.set(NodeConfig {
            word: old.word.invalid(),
            ..old
        })?;
        self.set(NodeConfig {
            word: word.invalid(),
            heartbeat_ns: now_ns,
            ..wanted
        })?;
        self.set(NodeConfig {
            word,
            heartbeat_ns: now_ns,
            ..wanted
        })?;
        Ok(true)
    }

    /// Writes the heartbeat, by which the agent confirms to the programs that the maps are current.
    pub fn write_heartbeat(&mut self, now_ns: u64) -> Result<(), DatapathError> {
        let config = self.get()?;
        self.set(NodeConfig {
            heartbeat_ns: now_ns,
            ..config
        })
    }

    /// Confirms what was learned before this tick.
    pub fn confirm(&mut self, confirmed: Tick) -> Result<(), DatapathError> {
        let config = self.get()?;
        self.set(NodeConfig {
            confirmed,
            ..config
        })
    }

    /// Invalidates the node's data: the programs leave every packet to the kernel, at once.
    pub fn invalidate(&mut self) -> Result<(), DatapathError> {
        let config = self.get()?;
        self.set(NodeConfig {
            word: config.word.invalid(),
            ..config
        })
    }

    fn set(&mut self, config: NodeConfig) -> Result<(), DatapathError> {
        self.0
            .set(ONLY, config, 0)
            .map_err(DatapathError::map(CONFIG))
    }
}

/// The `STATS` map.
pub struct StatsMap(PerCpuArray<MapData, Counter>);

impl StatsMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        PerCpuArray::try_from(from_pin(pins, STATS)?)
            .map(Self)
            .map_err(DatapathError::map(STATS))
    }

    /// Packets that were dropped, of all programs and reasons.
    pub fn drops(&self) -> Result<u64, DatapathError> {
        let dropping = Reason::ALL
            .into_iter()
            .filter(|reason| reason.verdict() == Verdict::Drop);
        let pairs = dropping.flat_map(|reason| {
            Program::ALL
                .into_iter()
                .map(move |program| (program, reason))
        });
        pairs
            .map(|(program, reason)| Ok(self.get(program, reason)?.packets))
            .sum()
    }

    /// The sum over all CPUs.
    pub fn get(&self, program: Program, reason: Reason) -> Result<Counter, DatapathError> {
        let values = self
            .0
            .get(&slot(program, reason), 0)
            .map_err(DatapathError::map(STATS))?;
        Ok(values.iter().fold(Counter::default(), |sum, cpu| Counter {
            packets: sum.packets.wrapping_add(cpu.packets),
            bytes: sum.bytes.wrapping_add(cpu.bytes),
        }))
    }
}
