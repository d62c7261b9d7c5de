//! The BPF side of the desired state that all families share: the maps, the node's data, the attachments and the mode.

use std::collections::BTreeSet;

use flannel_common::{
    mode::{Mode, ModeWord},
    node::NodeConfig,
};

use crate::{
    datapath::{AttachKind, Attachments, DatapathError, Hook, Maps, clock},
    reconcile::status::Dirty,
};

/// The loaded datapath and what should be in it.
pub struct Bpf {
    pub(super) maps: Maps,
    attachments: Attachments,
    refused: Vec<(Hook, String)>,
}

impl Bpf {
    /// Over maps that are open and programs that are pinned.
    pub fn new(maps: Maps, attachments: Attachments) -> Self {
        Self { maps, attachments, refused: Vec::new() }
    }

    /// How programs are attached.
    pub const fn attach_kind(&self) -> AttachKind {
        self.attachments.kind()
    }

    /// The mode word.
    pub fn mode(&self) -> Result<ModeWord, DatapathError> {
        self.maps.mode.get()
    }

    /// Puts a mode in force; whether it was another before.
    pub fn set_mode(&mut self, mode: Mode, choice: Option<Mode>) -> Result<bool, DatapathError> {
        self.maps.mode.set(mode, choice)
    }

    /// Tells the programs that the maps are vouched for.
    pub fn beat(&mut self) -> Result<(), DatapathError> {
        self.maps.config.beat(clock::now_ns())
    }

    /// Writes the node's data.
    pub fn write_config(&mut self, node: NodeConfig) -> Result<(), DatapathError> {
        if self.maps.config.write(node, clock::now_ns())? {
            tracing::debug!("the node's data in CONFIG changed");
        }
        Ok(())
    }

    /// Attaches the programs where they belong.
    pub fn attach(&mut self, hooks: &BTreeSet<Hook>) {
        let refused = self.attachments.apply(hooks);
        let refused: Vec<_> = refused.into_iter().map(|(hook, error)| (hook, chain(&error))).collect();
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

    /// Whether every program is where it belongs.
    pub fn is_attached(&self) -> bool {
        self.refused.is_empty()
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
