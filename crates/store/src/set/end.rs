//! A peer's end of the tunnel, as its lease describes it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use flannel_common::packet::addr::Mac;
use flannel_host::{family::Family, wireguard_key::PublicKey};

use super::{RejectReason, end_id::EndId, lease_family::LeaseFamily};
use crate::{
    Lease, LeaseAttrs, RawJson, VxlanData, WireguardData,
    config::{BackendConfig, EndKind, NetworkConfig, WireguardConfig, WireguardMode},
};

/// A peer's end of the tunnel, by the kind of tunnel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelEnd {
    /// Of VXLAN.
    Vxlan(Vtep),
    /// Of WireGuard. Shared: it is many times as large, and peers have VXLAN for the most part.
    Wireguard(Arc<WireguardEnd>),
    /// Of what the commands of the backend extension make: the text that theirs published.
    Text(Arc<String>),
}

/// A peer's vxlan device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vtep {
    /// Its Ethernet address.
    pub mac: Mac,
    /// It takes outer UDP over IPv6 without a checksum.
    pub zero_checksum_v6: bool,
    /// Its packets may carry another outer source than its public address.
    pub other_source: bool,
}

/// A peer's WireGuard device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireguardEnd {
    /// Its public key.
    pub key: PublicKey,
    /// The address and port at which it is reached; in the modes of one device, of either family.
    pub endpoint: SocketAddr,
}

impl TunnelEnd {
    /// Returns what identifies the end; `None` where only the commands of the operator know it.
    pub fn id(&self) -> Option<EndId> {
        match self {
            Self::Vxlan(vtep) => Some(EndId::Mac(vtep.mac)),
            Self::Wireguard(end) => Some(EndId::Key(end.key)),
            Self::Text(_) => None,
        }
    }

    /// The end of a VXLAN tunnel.
    pub fn vtep(&self) -> Option<Vtep> {
        match self {
            Self::Vxlan(vtep) => Some(*vtep),
            Self::Wireguard(_) | Self::Text(_) => None,
        }
    }
}

/// The end that a lease describes, and the way it is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndReader {
    /// The backend has no tunnel.
    None,
    /// That of VXLAN.
    Vtep,
    /// That of WireGuard, with the settings of this cluster.
    Wireguard(WireguardConfig),
    /// A text for commands, if there is one.
    Text,
}

impl EndReader {
    pub(super) const fn of(config: &NetworkConfig) -> Self {
        match (config.backend.properties().end, &config.backend) {
            (EndKind::Wireguard, BackendConfig::Wireguard(config)) => Self::Wireguard(*config),
            (EndKind::Vtep, _) => Self::Vtep,
            (EndKind::Text, _) => Self::Text,
            (EndKind::Wireguard | EndKind::None, _) => Self::None,
        }
    }

    /// The end of one family of a lease; `own` is what this node publishes.
    pub(super) fn read<P: LeaseFamily>(
        self,
        lease: &Lease,
        own: &LeaseAttrs,
    ) -> Result<Option<TunnelEnd>, RejectReason> {
        match self {
            Self::None => Ok(None),
            Self::Text => Ok(text::<P>(&lease.attrs)?.map(Arc::new).map(TunnelEnd::Text)),
            Self::Vtep => vtep::<P>(lease).map(TunnelEnd::Vxlan).map(Some),
            Self::Wireguard(config) => wireguard::<P>(config, &lease.attrs, own)
                .map(|end| Some(TunnelEnd::Wireguard(end.into()))),
        }
    }
}

/// Returns the text that commands printed on the node; `None` without such a command.
fn text<P: LeaseFamily>(attrs: &LeaseAttrs) -> Result<Option<String>, RejectReason> {
    P::data(attrs)
        .map(RawJson::to_text)
        .transpose()
        .map_err(RejectReason::BackendData)
}

/// By what the end of this backend data is known; `None` if it cannot be read.
pub(super) fn id_of(reader: EndReader, data: &RawJson) -> Option<EndId> {
    match reader {
        EndReader::None | EndReader::Text => None,
        EndReader::Vtep => VxlanData::parse(data)
            .ok()
            .map(|data| EndId::Mac(data.vtep_mac)),
        EndReader::Wireguard(_) => WireguardData::parse(data)
            .ok()
            .map(|data| EndId::Key(data.public_key)),
    }
}

fn vtep<P: LeaseFamily>(lease: &Lease) -> Result<Vtep, RejectReason> {
    let data = P::data(&lease.attrs).ok_or(RejectReason::NoBackendData)?;
    let VxlanData {
        vtep_mac: mac,
        zero_checksum_v6,
        other_source,
        ..
    } = VxlanData::parse(data).map_err(RejectReason::BackendData)?;
    if !mac.is_unicast() {
        return Err(RejectReason::BadMac(mac));
    }
    Ok(Vtep {
        mac,
        zero_checksum_v6,
        other_source: other_source || lease.is_overwritten_in(P::FAMILY),
    })
}

/// With one device for both families the endpoint is of the family that the mode chooses; the port
/// is the one published for IPv4 then, because it is the one that a device of stock flannel
/// listens on.
fn wireguard<P: LeaseFamily>(
    config: WireguardConfig,
    theirs: &LeaseAttrs,
    own: &LeaseAttrs,
) -> Result<WireguardEnd, RejectReason> {
    let data = P::data(theirs).ok_or(RejectReason::NoBackendData)?;
    let data = WireguardData::parse(data).map_err(RejectReason::BackendData)?;
    let by = family_to(config.mode, P::FAMILY, theirs, own);
    let address: Option<IpAddr> = match by {
        Family::V4 => theirs.public_ip.map(Into::into),
        Family::V6 => theirs.public_ipv6.map(Into::into),
    };
    let (published, ours) = match config.mode {
        WireguardMode::Separate if P::FAMILY == Family::V6 => (data.port, config.port_v6),
        WireguardMode::Separate => (data.port, config.port),
        _ => (
            theirs
                .backend_data
                .as_ref()
                .and_then(|data| WireguardData::parse(data).ok())
                .unwrap_or(data)
                .port,
            config.port,
        ),
    };
    let port = published.unwrap_or(ours);
    Ok(WireguardEnd {
        key: data.public_key,
        endpoint: SocketAddr::new(address.ok_or(RejectReason::NoPublicIp)?, port),
    })
}

/// The family of the addresses by which a peer is reached.
fn family_to(mode: WireguardMode, family: Family, theirs: &LeaseAttrs, own: &LeaseAttrs) -> Family {
    match mode {
        WireguardMode::Separate => family,
        WireguardMode::Ipv4 => Family::V4,
        WireguardMode::Ipv6 => Family::V6,
        WireguardMode::Auto => best_family_to(theirs, own),
    }
}

/// Returns the family that flannel chooses: IPv4 if the peer's address is not private, else IPv6 if
/// both are global.
fn best_family_to(theirs: &LeaseAttrs, own: &LeaseAttrs) -> Family {
    let both = |has: fn(&LeaseAttrs) -> bool| has(theirs) && has(own);
    if !both(|attrs| attrs.public_ipv6.is_some()) {
        return Family::V4;
    }
    let by_v4 = both(|attrs| attrs.public_ip.is_some());
    let v4_is_better = theirs.public_ip.is_some_and(is_global_v4);
    let v6_is_global = both(|attrs| attrs.public_ipv6.is_some_and(is_global_v6));
    if by_v4 && (v4_is_better || !v6_is_global) {
        Family::V4
    } else {
        Family::V6
    }
}

/// Not of the ranges for private use.
const fn is_global_v4(address: Ipv4Addr) -> bool {
    !address.is_private() && !address.is_link_local() && !address.is_loopback()
}

/// Not of the ranges for local use.
const fn is_global_v6(address: Ipv6Addr) -> bool {
    !address.is_unique_local() && !address.is_unicast_link_local()
}
