//! Offload features of devices, by the generic netlink family `ethtool` (kernel 5.7).
//!
//! A change of a feature is announced as a change of the link (`NETDEV_FEAT_CHANGE` in
//! `rtnetlink_event()`, [net/core/rtnetlink.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/rtnetlink.c)), without the features
//! themselves.

mod features;
mod message;

use netlink_packet_generic::{GenlFamily as _, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;

pub use self::features::DeviceFeatures;
use self::message::FeaturesMessage;
use crate::{
    error::{Fault, NetlinkError, Verb},
    generic,
    links::device_name::DeviceName,
    open,
    reply::Prune,
    socket,
    transport::Transport,
};

/// A handle on the features of devices. Clones share a socket.
#[derive(Debug, Clone)]
pub struct EthtoolNetlink {
    transport: Transport<GenlMessage<FeaturesMessage>>,
    protocol: u16,
}

impl Prune for GenlMessage<FeaturesMessage> {}

impl EthtoolNetlink {
    /// Opens a socket in the network namespace of the calling thread. An error on a kernel without
    /// `CONFIG_ETHTOOL_NETLINK`.
    pub async fn connect() -> Result<Self, NetlinkError> {
        let protocol = generic::protocol_number(FeaturesMessage::family_name()).await?;
        let socket = open("a NETLINK_GENERIC socket", || {
            socket::for_requests(NETLINK_GENERIC)
        })?;
        Ok(Self {
            transport: Transport::spawn(socket),
            protocol,
        })
    }

    /// The features of the device of this interface index.
    pub async fn features(&self, ifindex: u32) -> Result<DeviceFeatures, NetlinkError> {
        let mut question = GenlMessage::from_payload(FeaturesMessage::question(ifindex));
        question.set_resolved_family_id(self.protocol);
        let failed = |fault: Fault| {
            fault.on(
                Verb::Read,
                format_args!("the features of {}", DeviceName(ifindex)),
            )
        };
        let answer = self.transport.fetch(question).await.map_err(failed)?;
        let undecodable = |_| {
            failed(Fault::Undecodable {
                message_type: self.protocol,
                count: 1,
            })
        };
        answer.payload.features().map_err(undecodable)
    }

    /// Switches a feature of the device of this interface index. A device that cannot switch it
    /// keeps it, without an error.
    pub async fn set_feature(
        &self,
        ifindex: u32,
        feature: &str,
        is_on: bool,
    ) -> Result<(), NetlinkError> {
        let mut change =
            GenlMessage::from_payload(FeaturesMessage::change(ifindex, feature, is_on));
        change.set_resolved_family_id(self.protocol);
        let changed = self.transport.command(change, 0).await;
        changed.map_err(|fault| {
            fault.on(
                Verb::Change,
                format_args!("{feature} of {}", DeviceName(ifindex)),
            )
        })
    }
}
