//! IPsec: the process that agrees on keys with peers (strongSwan's charon), and its work.
//!
//! The policies that demand encryption are kernel objects like any other, see
//! [`crate::ipsec`]. This module keeps the process, and in it a shared key and a
//! connection for each peer, in a separate task ([`IpsecTunnels`]): the main loop waits for no
//! process. The task gets the leases and writes to the [`SharedIpsecStatus`].
//!
//! The process goes on without the agent, and the next agent finds it by its socket in the state
//! directory. Names and settings of connections are flannel's, so that stock nodes agree with ours.

mod associations;
mod carrier;
mod charon;
mod configuration;
mod desired;
mod error;
mod names;
mod ports;
mod setup;
mod shared;
mod vici;
mod worker;

use std::{net::IpAddr, path::Path};

use flannel_netlink::Netlink;
use flannel_store::Changes;
use ipnet::IpNet;
use tokio::sync::mpsc;

pub(crate) use self::carrier::{PART, carrier};
pub use self::{
    charon::{program, remove, stop},
    configuration::{directory, recorded_network},
    desired::{Ipsec, REQID, WAY, is_ours, policy_keys},
    error::IpsecError,
    names::IpsecEnd,
    setup::IpsecSetup,
    shared::SharedIpsecStatus,
};
use self::{
    configuration::CharonFiles,
    worker::{IpsecRequest, IpsecWorker},
};

/// The main loop's side of the task. The task ends with it; the process does not.
#[derive(Debug)]
pub struct IpsecTunnels {
    requests: mpsc::UnboundedSender<IpsecRequest>,
    /// This node as it was last, and whether the store had shown everything.
    node: Option<(Option<IpsecEnd>, bool)>,
}

impl IpsecTunnels {
    /// Starts the task.
    pub fn start(
        setup: IpsecSetup,
        netlink: Netlink,
        state_dir: &Path,
    ) -> Result<Self, IpsecError> {
        let files = CharonFiles::write(state_dir, setup.network)?;
        let (requests, receiver) = mpsc::unbounded_channel();
        tokio::spawn(IpsecWorker::new(setup, netlink, files).run(receiver));
        Ok(Self {
            requests,
            node: None,
        })
    }

    /// Stores this node's end, and passes the peers that are new, different or gone to the task.
    /// Does not wake the task without a change.
    pub fn learn(&mut self, own: Option<IpsecEnd>, changes: &Changes, in_sync: bool) {
        let is_same = self.node.replace((own, in_sync)) == Some((own, in_sync));
        if is_same && !changes.all && changes.peers.is_empty() {
            return;
        }
        let peers = changes.peers.iter().filter_map(|(subnet, peer)| {
            let IpNet::V4(subnet) = *subnet else {
                return None;
            };
            let address = peer.as_ref().and_then(|peer| match peer.public_ip {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            });
            Some((subnet, address))
        });
        let request = IpsecRequest {
            own,
            all: changes.all,
            peers: peers.collect(),
            in_sync,
        };
        // The task ends after this value only.
        let _ = self.requests.send(request);
    }
}
