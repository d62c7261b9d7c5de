//! WireGuard devices of the kernel: their keys and peers, by generic netlink (kernel 5.6).
//!
//! The device itself is a link like any other. Its settings have a separate protocol
//! ([include/uapi/linux/wireguard.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/wireguard.h)), whose number
//! the kernel assigns when the module is loaded.

mod device;
mod message;

use flannel_host::wireguard_key::{PublicKey, SecretKey};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_generic::{GenlFamily as _, GenlMessage};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_wireguard::WireguardMessage;
use netlink_sys::protocols::NETLINK_GENERIC;
use rtnetlink::LinkWireguard;

pub use self::device::{WireguardDevice, WireguardPeer, WireguardPeerState};
use super::{
    Netlink,
    error::{NetlinkError, Verb},
    generic,
    links::device_name::DeviceName,
    open,
    reply::Prune,
    socket,
    transport::{Dump, Transport},
};

/// A handle on the settings of the kernel's WireGuard devices. Clones share a socket.
#[derive(Debug, Clone)]
pub struct WireguardNetlink {
    transport: Transport<GenlMessage<WireguardMessage>>,
    protocol: u16,
}

impl Prune for GenlMessage<WireguardMessage> {}

impl WireguardNetlink {
    /// Opens a socket in the network namespace of the calling thread. The kernel knows the protocol
    /// once there is a device.
    pub async fn connect() -> Result<Self, NetlinkError> {
        let protocol = generic::protocol_number(WireguardMessage::family_name()).await?;
        let socket = open("a NETLINK_GENERIC socket", || {
            socket::for_requests(NETLINK_GENERIC)
        })?;
        Ok(Self {
            transport: Transport::spawn(socket),
            protocol,
        })
    }

    /// The device of this interface index.
    pub async fn device(&self, ifindex: u32) -> Result<WireguardDevice, NetlinkError> {
        let dump = self
            .transport
            .dump(self.message(message::question(ifindex)))
            .await
            .and_then(Dump::complete);
        let parts = dump.map_err(|fault| {
            fault.on(
                Verb::Read,
                format_args!("wireguard device {}", DeviceName(ifindex)),
            )
        })?;
        Ok(message::device(parts.iter().map(|part| &part.payload)))
    }

    /// Sets key and port of a device. Its peers stay.
    pub async fn set_identity(
        &self,
        ifindex: u32,
        key: SecretKey,
        port: u16,
    ) -> Result<(), NetlinkError> {
        let message = message::identity(ifindex, key, port);
        self.change(
            message,
            format_args!("key and port of wireguard device {}", DeviceName(ifindex)),
        )
        .await
    }

    /// Creates a peer, or changes an existing one. A prefix that another peer has moves to this
    /// one.
    pub async fn replace_peer(
        &self,
        ifindex: u32,
        key: PublicKey,
        peer: &WireguardPeer,
    ) -> Result<(), NetlinkError> {
        self.change(
            message::peer(ifindex, key, peer),
            format_args!("wireguard peer {key}"),
        )
        .await
    }

    /// Removes a peer. Succeeds if the peer does not exist.
    pub async fn remove_peer(&self, ifindex: u32, key: PublicKey) -> Result<(), NetlinkError> {
        let removed = self
            .transport
            .command(self.message(message::removal(ifindex, key)), 0)
            .await;
        removed.map_err(|fault| fault.on(Verb::Delete, format_args!("wireguard peer {key}")))
    }

    async fn change(
        &self,
        message: WireguardMessage,
        object: std::fmt::Arguments<'_>,
    ) -> Result<(), NetlinkError> {
        let changed = self.transport.command(self.message(message), 0).await;
        changed.map_err(|fault| fault.on(Verb::Change, object))
    }

    fn message(&self, payload: WireguardMessage) -> GenlMessage<WireguardMessage> {
        let mut message = GenlMessage::from_payload(payload);
        message.set_resolved_family_id(self.protocol);
        message
    }
}

impl Netlink {
    /// Creates a WireGuard device, down. [`NetlinkError::is_exists`] when the name is taken,
    /// [`NetlinkError::is_unsupported`] on a kernel without WireGuard.
    pub async fn create_wireguard(&self, name: &str) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewLink(LinkWireguard::new(name).build());
        let created = self.route.command(message, NLM_F_CREATE | NLM_F_EXCL).await;
        created.map_err(|fault| fault.on(Verb::Create, format_args!("wireguard device {name}")))
    }
}
