//! The lab: owner of everything that was made, taken down in reverse order.

pub mod child;
pub mod record;
mod report;
mod strays;

use std::{
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Result;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

use self::child::Process;
use crate::{Host, Node, lab::record::LabRecord};

/// A set of hosts on one kernel. Dropping it ends every process it started; their namespaces go
/// with them, and its handles are of no use any more.
#[derive(Debug)]
pub struct Lab {
    shared: Arc<Shared>,
}

/// The state that the handles of a lab share.
#[derive(Debug)]
pub(crate) struct Shared {
    record: LabRecord,
    lasting: bool,
    kept: Arc<AtomicBool>,
    /// A child ends when its last guard goes, so the lab only knows of it.
    children: Mutex<Vec<Weak<Process>>>,
    holders: Mutex<Vec<Arc<Process>>>,
}

impl Lab {
    /// A lab that ends with this value, and at the latest with this process. `name` is a short
    /// word; the lab's full name adds the process id.
    pub fn new(name: &str) -> Result<Self> {
        Self::build(name, false)
    }

    /// A lab whose processes can survive this one: call [`Lab::keep`] when it is complete. Dropped
    /// before that it ends like any other, and if this process dies `cargo xtask clean-lab` finds
    /// that its owner is gone.
    pub fn new_lasting(name: &str) -> Result<Self> {
        Self::build(name, true)
    }

    fn build(name: &str, lasting: bool) -> Result<Self> {
        let record = LabRecord::create(name)?;
        let (kept, children, holders) = (Arc::default(), Mutex::default(), Mutex::default());
        Ok(Self {
            shared: Arc::new(Shared {
                record,
                lasting,
                kept,
                children,
                holders,
            }),
        })
    }

    /// The lab's full name, unique on this machine.
    pub fn name(&self) -> &str {
        self.shared.record.name()
    }

    /// The lab's directory: its record and the logs of its processes.
    pub fn dir(&self) -> &Path {
        self.shared.record.dir()
    }

    /// A new directory for files that are too large for `/run`, or that machines are to see; it
    /// goes with the lab.
    pub fn large_files(&self, name: &str) -> Result<PathBuf> {
        self.shared.record.large_files(name)
    }

    /// Adds a node that has only `lo`, with IPv4 and IPv6 forwarding on. All else has the kernel's
    /// defaults.
    pub fn node(&self, name: &str) -> Result<Node> {
        Node::new(Host::new(&self.shared, name)?)
    }

    /// Adds a node that is a whole machine: with its own processes, cgroups, name and files, as a
    /// container runtime needs them.
    pub fn machine(&self, name: &str) -> Result<Node> {
        Node::new(Host::new_machine(&self.shared, name)?)
    }

    /// Records the processes that agents left running by themselves, so that `cargo xtask
    /// clean-lab` knows them if this process dies. The lab ends them in any case.
    pub fn record_strays(&self) -> Result<()> {
        let holders = self
            .shared
            .holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        strays::of(&holders)
            .into_iter()
            .try_for_each(|pid| self.shared.record.add(pid, "left by an agent"))
    }

    /// From now on SIGINT and SIGTERM end the lab, then this process with status 128 + n. For
    /// programs, not tests.
    pub fn end_on_interrupt(&self) -> Result<()> {
        // Not a blocked signal mask: children would inherit it.
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::downgrade(&self.shared);
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        thread::Builder::new()
            .name("lab-interrupt".to_owned())
            .spawn(move || {
                let number = runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => SignalKind::interrupt(),
                        _ = terminate.recv() => SignalKind::terminate(),
                    }
                });
                if let Some(shared) = shared.upgrade() {
                    shared.end();
                }
                process::exit(128 + number.as_raw_value());
            })?;
        Ok(())
    }

    /// Lets go of a lab made with [`Lab::new_lasting`]: it stays until `cargo xtask clean-lab`.
    pub fn keep(self) -> Result<()> {
        self.shared.record.keep()?;
        self.shared
            .kept
            .store(self.shared.lasting, Ordering::Relaxed);
        Ok(())
    }
}

impl Shared {
    pub(crate) fn record(&self) -> &LabRecord {
        &self.record
    }

    /// Returns true if the processes of this lab are to survive this process.
    pub(crate) fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// Becomes true when the lab is let go.
    pub(crate) fn kept(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.kept)
    }

    pub(crate) fn own_child(&self, process: &Arc<Process>) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(process));
    }

    pub(crate) fn own_holder(&self, process: &Arc<Process>) {
        self.holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(process));
    }
}

impl Shared {
    /// Ends everything, in reverse order. A second call finds nothing to do.
    fn end(&self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        let children =
            std::mem::take(&mut *self.children.lock().unwrap_or_else(PoisonError::into_inner));
        let holders =
            std::mem::take(&mut *self.holders.lock().unwrap_or_else(PoisonError::into_inner));
        report::keep(
            self.record.name(),
            &self.record.dir().join("logs"),
            holders.iter().map(|holder| holder.pid()),
        );
        // One that has ended already is as good.
        children
            .iter()
            .rev()
            .filter_map(Weak::upgrade)
            .for_each(|process| drop(process.end()));
        strays::end(&holders);
        holders
            .into_iter()
            .rev()
            .for_each(|process| drop(process.end()));
        if let Err(error) = self.record.remove() {
            eprintln!("lab {}: its directory stays: {error:#}", self.record.name());
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.shared.end();
    }
}
