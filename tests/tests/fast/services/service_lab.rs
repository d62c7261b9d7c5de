//! The lab, with the rules of Services on both nodes.

use anyhow::Result;
use flannel_tests::{
    fast::{Family, FastLab},
    service_rules::{Backend, Service, ServiceRules},
};

pub(crate) struct ServiceLab {
    pub(crate) backend: Backend,
    rules: [[ServiceRules; 2]; 2],
    pub(crate) lab: FastLab,
}

impl ServiceLab {
    pub(crate) fn new(name: &str, backend: Backend) -> Result<Self> {
        let lab = FastLab::new(name, &[])?;
        let rules = |node| -> Result<[ServiceRules; 2]> {
            let install = |family: Family| ServiceRules::install(node, backend, family.pods());
            Ok([install(Family::V4)?, install(Family::V6)?])
        };
        let rules = [rules(&lab.nodes.a)?, rules(&lab.nodes.b)?];
        Ok(Self {
            backend,
            rules,
            lab,
        })
    }

    pub(crate) fn set_services(&self, family: Family, services: &[Service]) -> Result<()> {
        self.rules
            .iter()
            .try_for_each(|of_node| of_node[usize::from(family == Family::V6)].set(services))
    }

    /// Talks, in mode `fast` until packets were replayed on these nodes (`a`, `b`).
    pub(crate) fn carried(
        &self,
        mode: &str,
        by: [bool; 2],
        mut exchange: impl FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        if mode == "fast" {
            self.lab.until_replayed_on(by, exchange)
        } else {
            exchange(200)
        }
    }
}

impl std::ops::Deref for ServiceLab {
    type Target = FastLab;

    fn deref(&self) -> &FastLab {
        &self.lab
    }
}
