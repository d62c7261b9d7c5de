//! Reasons why a lease is refused.

use std::{fmt, net::IpAddr};

use flannel_common::packet::addr::Mac;
use flannel_host::{excerpt::excerpt, family::Family};
use ipnet::IpNet;

use super::{AddressFault, end_id::EndId};
use crate::{BadAttrs, BadLease, Precedence};

/// A refused entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The name of the store entry.
    pub key: String,
    /// The family refused; `None` when the whole entry is.
    pub family: Option<Family>,
    /// The reason.
    pub reason: RejectReason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Some(family) => write!(
                f,
                "lease {:?} ({family}): {}",
                excerpt(&self.key),
                self.reason
            ),
            None => write!(f, "lease {:?}: {}", excerpt(&self.key), self.reason),
        }
    }
}

/// The resources that two leases cannot share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// A VTEP MAC.
    Mac,
    /// The public key of a WireGuard device.
    Key,
    /// A part of the pod network.
    Subnet,
}

impl RejectReason {
    /// Returns the resource that this lease claims and another node has. `None` for the other
    /// reasons: mistakes within the lease, or a former lease of this node.
    pub const fn conflict(&self) -> Option<Conflict> {
        match self {
            Self::OurEnd(end) | Self::DuplicateEnd { end, .. } => Some(match end {
                EndId::Mac(_) => Conflict::Mac,
                EndId::Key(_) => Conflict::Key,
            }),
            Self::OurSubnet { .. } | Self::Overlap { .. } => Some(Conflict::Subnet),
            _ => None,
        }
    }

    /// True if this node is the one that has it.
    pub const fn is_with_us(&self) -> bool {
        matches!(self, Self::OurEnd(_) | Self::OurSubnet { .. })
    }
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// Not a lease at all.
    #[error(transparent)]
    Malformed(BadLease),
    /// The backend's part cannot be read.
    #[error("malformed backend data: {0}")]
    BackendData(BadAttrs),
    /// The node runs another backend.
    #[error("its backend is {theirs}, ours is {ours:?}")]
    BackendType {
        /// The peer's, in quotes and cut.
        theirs: String,
        /// Ours.
        ours: &'static str,
    },
    /// The lease has a subnet of this family and no address to reach the node at.
    #[error("it has no public address")]
    NoPublicIp,
    /// The public address cannot be one node's, or not be reached from this one.
    #[error("its public address {address} {fault}")]
    BadPublicIp {
        /// The address.
        address: IpAddr,
        /// The fault of the address.
        fault: AddressFault,
    },
    /// The public address is ours.
    #[error(
        "its public address {0} is ours; a former lease of this node, or another node with our \
         address"
    )]
    OurPublicIp(IpAddr),
    /// The lease has a subnet of this family and no backend data.
    #[error("it has no backend data")]
    NoBackendData,
    /// The VTEP MAC cannot be one device's.
    #[error("its VTEP MAC {0} is not a unicast address")]
    BadMac(Mac),
    /// The lease describes an end of a tunnel that is ours.
    #[error(
        "its {0} is ours; a former lease of this node, a copy of this machine, or a node that \
         claims to be this \
         one: delete what is left behind, or give one tunnel device {another}",
        another = .0.another()
    )]
    OurEnd(EndId),
    /// Another lease with the same end of a tunnel is accepted.
    #[error("its {end} {}", precedence.verdict(winner, end.another()))]
    DuplicateEnd {
        /// The end.
        end: EndId,
        /// The accepted entry.
        winner: String,
        /// The rule by which it is.
        precedence: Precedence,
    },
    /// The subnet is outside of the pod network.
    #[error("its subnet {subnet} is not in the network {network}")]
    OutsideNetwork {
        /// The peer's subnet.
        subnet: IpNet,
        /// The pod network.
        network: IpNet,
    },
    /// The subnet overlaps ours.
    #[error("its subnet {subnet} overlaps ours, {ours}")]
    OurSubnet {
        /// The peer's subnet.
        subnet: IpNet,
        /// Ours.
        ours: IpNet,
    },
    /// The subnet overlaps that of an older lease.
    #[error("its subnet {subnet} overlaps that of the older lease {winner:?}")]
    Overlap {
        /// The peer's subnet.
        subnet: IpNet,
        /// The accepted entry.
        winner: String,
    },
}
