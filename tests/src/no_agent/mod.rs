//! Two nodes without agents: the kernel's tunnel by hand, the programs by the agent's library, the
//! maps by the test.
//!
//! ```text
//!   pods 10.244.1.2.. - cni0 - flannel.1 - a eth0 192.168.1.11
//!                                                   |
//!   pods 10.244.2.2.. - cni0 - flannel.1 - b eth0 192.168.1.12
//! ```
//!
//! The test does the agent's work (sysctls, pods' entries, generations), so that it can also omit
//! it.

mod node;
mod rules;
mod skip;
mod talk;

pub use self::{
    node::{BareNode, Counts, Key},
    talk::Talk,
};

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_common::abi::mode::Mode;

use crate::{Lab, Pod, cluster::topology::Two, eventually, service_rules::Backend};

/// The Service of [`BareNode::service`].
pub const SERVICE: &str = "10.96.0.1";
/// Its port; the pods' is the one the test gives.
pub const SERVICE_PORT: u16 = 80;

/// The two nodes, with a pod on each.
pub struct BarePair {
    /// 192.168.1.11, pods 10.244.1.0/24.
    pub a: BareNode,
    /// 192.168.1.12, pods 10.244.2.0/24.
    pub b: BareNode,
    /// A pod on `a`.
    pub near: Pod,
    /// A pod on `b`.
    pub far: Pod,
    // Last: the lab goes when its handles are of no use any more.
    /// The lab.
    pub lab: Lab,
}

impl BarePair {
    /// In mode `fast`, with the rules of a usual cluster: masquerade for what leaves it, packets
    /// conntrack calls invalid dropped in FORWARD.
    pub fn new(name: &str) -> Result<Self> {
        let lab = Lab::new(name)?;
        let net = Two::new(&lab)?;
        let mut a = BareNode::new(&net.a, 1)?;
        let mut b = BareNode::new(&net.b, 2)?;
        a.know(&b)?;
        b.know(&a)?;
        let (near, far) = (a.add_pod("p1")?, b.add_pod("p1")?);
        for node in [&mut a, &mut b] {
            node.liberal_conntrack()?;
            node.usual_rules(Backend::Nftables)?;
            node.set_mode(Mode::Fast)?;
        }
        Ok(Self {
            a,
            b,
            near,
            far,
            lab,
        })
    }

    /// A connection from `near` to `far`.
    pub fn talk(&self) -> Result<Talk> {
        let bind = SocketAddr::new(self.far.ip(), 0);
        Talk::open(&self.near, &self.far, bind, None)
    }

    /// Both nodes.
    pub const fn nodes(&self) -> [&BareNode; 2] {
        [&self.a, &self.b]
    }

    /// Exchanges messages until `packets` more packets are replayed on each node.
    pub fn talk_until_replayed(&self, talk: &mut Talk, packets: u64) -> Result<()> {
        let start = [self.a.replayed()?, self.b.replayed()?];
        eventually("replayed packets", Duration::from_secs(10), || {
            talk.exchange(100)?;
            for (node, start) in self.nodes().into_iter().zip(start) {
                let replayed = node.replayed()? - start;
                ensure!(
                    replayed >= packets,
                    "{replayed} of {packets}: {:#?}",
                    node.counts()?
                );
            }
            Ok(())
        })
    }

    /// Puts both nodes in a mode.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        self.a.set_mode(mode)?;
        self.b.set_mode(mode)
    }
}
