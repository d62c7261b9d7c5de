//! The BPF side of the desired state that all families share: the maps, the node's data, the
//! attachments and the mode.

use std::collections::{BTreeMap, BTreeSet};

use flannel_backend_api::ProgramSet;
use flannel_common::abi::{
    fast::{FastConfig, PodEntry},
    mode::{Mode, ModeWord},
    node::{HEARTBEAT_LIMIT_NS, NodeConfig},
    tick::tick,
};
use flannel_datapath::{
    Announcements, AttachKind, Attachments, DatapathError, FlowTable, Hook, JudgeFinder, Judges,
    Maps, PinRoot,
    attach::{EarlyGuard, polls},
    kernel::clock,
    maps::room::KernelLimit,
    policy::{Capability, NO_TUNNEL},
};
use flannel_firewall::RuleLimit;
use flannel_host::error_chain::chain;
use flannel_status::Dirty;

/// The loaded datapath and what should be in it.
pub struct Bpf {
    pub(super) maps: Maps,
    attachments: Attachments,
    early: EarlyGuard,
    pins: PinRoot,
    refused: Vec<(Hook, String)>,
    /// True if polls are counted; `None` while a previous agent may have left its counter.
    counts_polls: Option<bool>,
    served: ProgramSet,
    limit: Option<KernelLimit>,
    flow_table: Option<FlowTable>,
    judge_finder: Option<JudgeFinder>,
    judges: Judges,
    /// Devices of pods that had an entry once and have none.
    left: BTreeSet<u32>,
    _announcements: Option<Announcements>,
}

/// The age of a heartbeat from which on packets may have bypassed the programs, in nanoseconds.
/// After twice as much the programs leave every packet to the kernel.
const GAP_NS: u64 = HEARTBEAT_LIMIT_NS / 2;

impl Bpf {
    /// Over maps that are open and programs that are pinned. `limit` is what the kernel does not do
    /// for them.
    pub fn new(
        maps: Maps,
        attachments: Attachments,
        early: EarlyGuard,
        pins: PinRoot,
        served: ProgramSet,
        limit: Option<KernelLimit>,
    ) -> Self {
        Self {
            maps,
            attachments,
            early,
            pins,
            refused: Vec::new(),
            counts_polls: None,
            served,
            limit,
            flow_table: None,
            judge_finder: None,
            judges: Judges::default(),
            left: BTreeSet::new(),
            _announcements: None,
        }
    }

    /// With the thread that handles announced connections.
    #[must_use]
    pub fn with_announcements(self, announcements: Option<Announcements>) -> Self {
        Self {
            _announcements: announcements,
            ..self
        }
    }

    /// With tables of known flows of this size.
    #[must_use]
    pub fn with_flow_table(self, flow_table: FlowTable) -> Self {
        Self {
            flow_table: Some(flow_table),
            ..self
        }
    }

    /// Their size.
    pub const fn flow_table(&self) -> Option<&FlowTable> {
        self.flow_table.as_ref()
    }

    /// Returns what this node supports: the highest mode, and if there is a tunnel.
    pub fn capability(&self) -> Capability {
        let most = self.limit.as_ref().map_or(Mode::Fast, |limit| limit.mode);
        Capability {
            most,
            tunnel: self.served.has_tunnel(),
            has_work: true,
        }
    }

    /// Returns the reason why the node does not support every mode: the kernel's limit, else the
    /// lack of a tunnel. `None` if it supports all.
    pub fn limited_by(&self) -> Option<&str> {
        let no_tunnel = (!self.served.has_tunnel()).then_some(NO_TUNNEL);
        self.limit
            .as_ref()
            .map(|limit| limit.reason.as_str())
            .or(no_tunnel)
    }

    /// Returns true if there is a tunnel, and so packets for the guard to check.
    pub const fn has_tunnel(&self) -> bool {
        self.served.has_tunnel()
    }

    /// The maps.
    pub const fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The maps, for who owns one of them.
    pub const fn maps_mut(&mut self) -> &mut Maps {
        &mut self.maps
    }

    /// Returns the pin root.
    pub(super) const fn pins(&self) -> &PinRoot {
        &self.pins
    }

    /// The guard at the driver.
    pub const fn early_guard(&self) -> &EarlyGuard {
        &self.early
    }

    /// Returns the method by which programs are attached.
    pub const fn attach_kind(&self) -> AttachKind {
        self.attachments.kind()
    }

    /// The mode word.
    pub fn mode(&self) -> Result<ModeWord, DatapathError> {
        self.maps.mode.get()
    }

    /// Writes the mode that was decided on when the operator's choice was `choice`. Returns true if
    /// the mode changed, and `None`, without a write, if the operator has made another choice
    /// since.
    pub fn follow_mode(
        &mut self,
        mode: Mode,
        choice: Option<Mode>,
    ) -> Result<Option<bool>, DatapathError> {
        self.maps.mode.follow(mode, choice)
    }

    /// Writes the heartbeat, which confirms to the programs that the maps are current.
    pub fn write_heartbeat(&mut self) -> Result<(), DatapathError> {
        let now = clock::now_ns();
        if now.saturating_sub(self.maps.config.get()?.heartbeat_ns) > GAP_NS {
            self.begin_epoch()?;
        }
        self.maps.config.write_heartbeat(now)
    }

    /// Writes the node's data. Returns true if it was other data before.
    pub fn write_config(&mut self, node: NodeConfig) -> Result<bool, DatapathError> {
        let changed = self.maps.config.write(node, clock::now_ns())?;
        if changed {
            tracing::debug!("the node's data in CONFIG changed");
        }
        Ok(changed)
    }

    /// Counts polls where mode `fast` needs that: from the first listener to a queue on. What was
    /// learned in the moment before is discarded.
    pub fn count_polls(&mut self) -> Result<(), DatapathError> {
        if self.counts_polls == Some(true) {
            return Ok(());
        }
        let were_counted = self.counts_polls.is_none() && polls::are_counted(&self.pins);
        if !were_counted && !polls::are_needed() {
            return Ok(());
        }
        polls::attach(&self.pins)?;
        self.counts_polls = Some(true);
        if were_counted {
            Ok(())
        } else {
            self.new_generation()
        }
    }

    /// Confirms what was learned so far: no listener to a queue was there, or polls are counted. A
    /// flow is not used before that, so none is used that was learned from a packet userspace had
    /// held.
    pub fn confirm(&mut self) -> Result<(), DatapathError> {
        let now = tick(clock::now_ns());
        self.count_polls()?;
        self.maps.config.confirm(now)
    }

    /// Counts them no more.
    pub fn forget_polls(&mut self) -> Result<(), DatapathError> {
        if self.counts_polls != Some(false) {
            polls::detach(&self.pins)?;
            self.counts_polls = Some(false);
        }
        Ok(())
    }

    /// Writes settings and pods of mode `fast`. Returns true if known flows may depend on what was
    /// different before; a pod that is new has none.
    pub fn write_fast(
        &mut self,
        settings: FastConfig,
        pods: &BTreeMap<u32, PodEntry>,
    ) -> Result<bool, DatapathError> {
        let before = self.maps.fast.get()?;
        let mut changed = before != settings;
        // While a direction was not learned, its packets said nothing.
        let mut is_gap = before.flags != settings.flags;
        if changed {
            self.maps.fast.set(settings)?;
        }
        let known = self.maps.pods.without_slots()?;
        for index in known.keys().filter(|index| !pods.contains_key(index)) {
            self.maps.pods.remove(*index)?;
            self.left.insert(*index);
            changed = true;
        }
        for (index, entry) in pods
            .iter()
            .filter(|(index, entry)| known.get(index) != Some(entry))
        {
            self.maps.pods.write(*index, *entry)?;
            is_gap |= self.left.remove(index);
            changed |= known.contains_key(index);
        }
        if is_gap {
            self.begin_epoch()?;
        }
        Ok(changed)
    }

    /// Packets of known flows may have bypassed the programs. Another mode begins an epoch anyway.
    fn begin_epoch(&mut self) -> Result<(), DatapathError> {
        if self.maps.mode.get()?.mode() == Mode::Fast {
            self.maps.mode.begin_epoch()
        } else {
            Ok(())
        }
    }

    /// Discards what mode `fast` has learned. Other modes use none of it.
    pub fn new_generation(&mut self) -> Result<(), DatapathError> {
        if self.maps.mode.get()?.mode() == Mode::Fast {
            self.maps.mode.bump()
        } else {
            Ok(())
        }
    }

    /// Looks for BPF programs at netfilter's hooks. Returns true if others were found than before.
    pub fn look_for_judges(&mut self) -> Result<bool, DatapathError> {
        let finder = match self.judge_finder.take() {
            Some(finder) => finder,
            None => JudgeFinder::open(&self.pins)?,
        };
        let judges = self.judge_finder.insert(finder).find()?;
        Ok(std::mem::replace(&mut self.judges, judges) != judges)
    }

    /// The highest mode in which those programs see each packet, if that is not the highest.
    pub fn judges_limit(&self) -> Option<RuleLimit> {
        self.judges.limit(self.served.has_tunnel())
    }

    /// Returns true if another [`Self::attach`] is due at once.
    pub const fn has_backlog(&self) -> bool {
        self.attachments.has_backlog()
    }

    /// The next [`Self::attach`] looks at every hook.
    pub fn invalidate(&mut self) {
        self.attachments.invalidate();
        self.early.invalidate();
    }

    /// Attaches the programs where they belong; the guard's at the driver of the external
    /// interface.
    pub fn attach(&mut self, hooks: &BTreeSet<Hook>, external: Option<u32>) {
        self.early.apply(external);
        let refused = self.attachments.apply(hooks);
        let refused: Vec<_> = refused
            .into_iter()
            .map(|(hook, error)| (hook, chain(&error)))
            .collect();
        for (hook, error) in &refused {
            if !self.refused.iter().any(|(known, _)| known == hook) {
                tracing::warn!(
                    program = hook.program.name(),
                    device = hook.ifname,
                    error,
                    "cannot attach; tried again"
                );
            }
        }
        self.refused = refused;
    }

    /// The programs that are not where they belong.
    pub fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.refused.iter().map(|(hook, error)| Dirty {
            object: format!("{} on {}", hook.program.name(), hook.ifname),
            error: error.clone(),
            attempts: 1,
        })
    }

    /// Returns true if the last [`Self::attach`] put every program where it belongs.
    pub fn is_attached(&self) -> bool {
        self.refused.is_empty()
    }
}
