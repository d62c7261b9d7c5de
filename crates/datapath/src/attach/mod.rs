//! Attachment of programs: desired state like any other, a set of (program, device) pairs.
//!
//! Two methods exist: TCX links where the kernel has them (6.6), and cls_bpf filters on a clsact
//! qdisc. Both survive this process: links are pinned, filters belong to the device. A change of
//! method attaches the new one before it detaches the old one, so every packet passes at least one
//! of them; a packet that passes both is handled by the first.

mod clsact;
mod early;
pub mod filters;
mod hook;
pub mod polls;
pub mod query;
mod tcx;

use std::{collections::BTreeSet, io, path::Path};

use aya::programs::{SchedClassifier, TcAttachType};
use flannel_common::abi::program::Program;
use nix::net::if_::{if_nameindex, if_nametoindex};

use crate::{DatapathError, PinRoot, pins};

pub use clsact::{Ledger, PRIORITY, handle, is_our_handle};
pub use early::{EarlyGuard, XdpGuardMode};
pub use hook::{Hook, direction};

/// The method by which programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachKind {
    /// Pinned TCX links, last in their chain; kernel 6.6.
    Tcx,
    /// cls_bpf filters on a clsact qdisc, of our priority and handle.
    Clsact,
}

impl AttachKind {
    /// Its name, in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }

    /// Returns the method this kernel offers: TCX if it answers a TCX query on `lo`, else clsact.
    pub fn detect() -> Self {
        let query = if_nametoindex("lo").map_err(io::Error::from);
        match query.and_then(|loopback| query::programs(loopback, TcAttachType::Ingress)) {
            Ok(_) => Self::Tcx,
            Err(_) => Self::Clsact,
        }
    }
}

/// Returns true if our program is on the device, attached by either method. A TCX program is
/// recognised by its pinned link, a filter by its priority and handle; we attach one filter to each
/// side of a device.
pub fn is_on(pins: &PinRoot, program: Program, ifindex: u32) -> bool {
    let side = direction(program);
    let by_link = query::held_by(&pins.link(program, ifindex)).is_some_and(|ours| {
        query::programs(ifindex, side).is_ok_and(|programs| programs.contains(&ours))
    });
    by_link
        || filters::list(ifindex, side).is_ok_and(|filters| {
            filters
                .iter()
                .any(|filter| filter.priority == PRIORITY && is_our_handle(filter.handle))
        })
}

/// Returns true for the names that pinned links have.
pub fn is_link_name(name: &str) -> bool {
    let is_of_poll_counter = || polls::TRACEPOINTS.iter().any(|(_, link)| *link == name);
    tcx::parse(name).is_some() || early::is_link_name(name) || is_of_poll_counter()
}

/// Programs attached to pods in one turn: for each TCX link the kernel waits until no packet uses
/// what was there, ten milliseconds or so, and others want the caller's time too.
const PODS_IN_A_TURN: usize = 16;

/// Attaches and detaches the pinned programs.
#[derive(Debug)]
pub struct Attachments {
    pins: PinRoot,
    kind: AttachKind,
    /// In the handles of our filters.
    tag: u32,
    ledger: Ledger,
    done: BTreeSet<Hook>,
    /// Filters of an earlier life may be where none is wanted.
    inherits: bool,
    stale: bool,
    behind: bool,
}

impl Attachments {
    /// Creates the state for the programs pinned below `pins`. `tag` distinguishes our filters from
    /// another agent's; `state_dir` holds the list of clsact qdiscs that are ours to remove.
    pub fn new(pins: PinRoot, kind: AttachKind, tag: u32, state_dir: &Path) -> Self {
        let ledger = Ledger::new(state_dir);
        Self {
            pins,
            kind,
            tag,
            ledger,
            done: BTreeSet::new(),
            inherits: true,
            stale: true,
            behind: false,
        }
    }

    /// The way in use.
    pub const fn kind(&self) -> AttachKind {
        self.kind
    }

    /// The next [`Self::apply`] looks at every hook. Those on pods it looks at only then.
    pub const fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Returns true if another [`Self::apply`] is due at once, because the last one left hooks on
    /// pods for later.
    pub const fn has_backlog(&self) -> bool {
        self.behind
    }

    /// Attaches the desired hooks that are not attached yet, of pods only a limited number per
    /// call, and detaches the hooks that are no longer desired. Every hook is tried; each error is
    /// returned with its hook.
    pub fn apply(&mut self, wanted: &BTreeSet<Hook>) -> Vec<(Hook, DatapathError)> {
        let mut failed = Vec::new();
        let stale = std::mem::replace(&mut self.stale, false);
        self.take_off(wanted);
        let mut left = PODS_IN_A_TURN;
        self.behind = false;
        for hook in wanted {
            let trusted = hook.is_on_pod() && !stale;
            if self.done.contains(hook) && (trusted || self.is_attached(hook)) {
                continue;
            }
            if hook.is_on_pod() && left == 0 {
                self.done.remove(hook);
                self.behind = true;
                continue;
            }
            match self.attach(hook) {
                Ok(()) => {
                    left -= usize::from(hook.is_on_pod());
                    tracing::info!(
                        program = hook.program.name(),
                        device = hook.ifname,
                        kind = ?self.kind,
                        "attached"
                    );
                    self.done.insert(hook.clone());
                }
                Err(error) => failed.push((hook.clone(), error)),
            }
        }
        if let Err(error) = self.sweep(wanted) {
            tracing::warn!(%error, "stale attachments stay until the next try");
        }
        if self.inherits {
            let cleared = self.clear(wanted);
            self.inherits = cleared.is_err();
            if let Err(error) = cleared {
                tracing::warn!(%error, "filters of an earlier agent may stay until the next try");
            }
        }
        failed
    }

    /// Takes off the filters an earlier agent left where none is wanted: its devices are the only
    /// list of them.
    fn clear(&self, wanted: &BTreeSet<Hook>) -> io::Result<()> {
        for device in &if_nameindex()? {
            let ifindex = device.index();
            for side in [TcAttachType::Ingress, TcAttachType::Egress] {
                if !wanted
                    .iter()
                    .any(|hook| hook.ifindex == ifindex && hook.direction() == side)
                {
                    clsact::remove(ifindex, side, handle(self.tag))?;
                }
            }
        }
        Ok(())
    }

    /// Takes off the filters that are not wanted any more. Links go by [`Self::sweep`].
    fn take_off(&mut self, wanted: &BTreeSet<Hook>) {
        let unwanted: Vec<Hook> = self
            .done
            .extract_if(.., |hook| !wanted.contains(hook))
            .collect();
        for hook in unwanted.iter().filter(|_| self.kind == AttachKind::Clsact) {
            if let Err(error) = clsact::detach(hook, handle(self.tag)) {
                tracing::warn!(%error, "a filter that is not wanted any more stays");
            }
        }
    }

    fn attach(&mut self, hook: &Hook) -> Result<(), DatapathError> {
        let path = self.pins.program(hook.program);
        let mut program =
            SchedClassifier::from_pin(path).map_err(DatapathError::program(hook.program.name()))?;
        match self.kind {
            AttachKind::Tcx => tcx::attach(
                &mut program,
                hook,
                &self.pins.link(hook.program, hook.ifindex),
            )?,
            AttachKind::Clsact => {
                clsact::attach(&mut program, hook, handle(self.tag), &mut self.ledger)?;
            }
        }
        match self.kind {
            AttachKind::Tcx => clsact::detach(hook, handle(self.tag)),
            AttachKind::Clsact => pins::remove(&self.pins.link(hook.program, hook.ifindex)),
        }
    }

    /// Returns true if the pinned program is on the device now. Another process may have removed
    /// it.
    fn is_attached(&self, hook: &Hook) -> bool {
        let id = SchedClassifier::from_pin(self.pins.program(hook.program))
            .and_then(|program| program.info());
        match (id, self.kind) {
            (Ok(ours), AttachKind::Tcx) => tcx::is_attached(hook, ours.id()),
            (Ok(_), AttachKind::Clsact) => clsact::is_attached(hook, handle(self.tag)),
            (Err(_), _) => false,
        }
    }

    /// Drops links to devices that are not wanted any more; filters went with their device.
    fn sweep(&self, wanted: &BTreeSet<Hook>) -> Result<(), DatapathError> {
        let wanted: BTreeSet<_> = wanted
            .iter()
            .map(|hook| (hook.program, hook.ifindex))
            .collect();
        for (program, ifindex, path) in tcx::pinned(&self.pins)? {
            if !wanted.contains(&(program, ifindex)) {
                pins::remove(&path)?;
            }
        }
        Ok(())
    }
}
