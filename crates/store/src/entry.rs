//! One entry of the store, as the manager hands it on.

use std::sync::Arc;

use flannel_host::{excerpt::excerpt, family::Family};
use ipnet::IpNet;

use super::{BadAttrs, BadKey, LeaseAttrs, LeaseKey};

/// A well-formed lease. [`super::LeaseSet`] decides if it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The subnets.
    pub key: LeaseKey,
    /// The attributes of the node that holds them.
    pub attrs: LeaseAttrs,
    /// The remarks on it, which few leases have.
    pub remarks: Option<Box<Remarks>>,
}

impl Lease {
    /// Returns the reason the attributes of a family cannot be read, if they cannot.
    pub fn malformed_in(&self, family: Family) -> Option<&BadAttrs> {
        let malformed = self.remarks.iter().flat_map(|remarks| &remarks.malformed);
        malformed
            .into_iter()
            .find(|(malformed, _)| *malformed == family)
            .map(|(_, bad)| bad)
    }

    /// Returns true if an operator wrote the public address of a family over the node's own.
    pub fn is_overwritten_in(&self, family: Family) -> bool {
        self.remarks
            .as_ref()
            .is_some_and(|remarks| remarks.overwritten.contains(&family))
    }
}

/// Remarks on a lease. In etcd none has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Families whose attributes cannot be read, and why. In etcd the value is one text; in
    /// Kubernetes each attribute is one, and a mistake in one family is none in the other.
    pub malformed: Vec<(Family, BadAttrs)>,
    /// Families whose public address an operator wrote over the node's own, so that its packets may
    /// carry another. Etcd has no such setting.
    pub overwritten: Vec<Family>,
}

impl Remarks {
    /// As a lease keeps them.
    pub fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| self.into())
    }
}

/// The reason why an entry below the lease prefix is not a lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLease {
    /// The key names no subnet.
    #[error("malformed key: {0}")]
    Key(BadKey),
    /// The value cannot be read.
    #[error("malformed value: {0}")]
    Value(BadAttrs),
    /// The value is too large to be read.
    #[error("its value is larger than {} MiB; delete the key, or find out who writes \
        it", .limit >> 20)]
    TooLarge {
        /// The largest answer that is read, in bytes.
        limit: usize,
    },
    /// The Node has no usable pod CIDR.
    #[error(transparent)]
    PodCidr(BadPodCidr),
}

/// Faults of the pod CIDRs of a Node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPodCidr {
    /// There is none.
    #[error("it has no pod CIDR")]
    Missing,
    /// Not a network in CIDR form.
    #[error("its pod CIDR {:?} is no network", excerpt(.0))]
    Malformed(String),
    /// More than one of each family.
    #[error("it has {0} pod CIDRs; there can be one of each family")]
    TooMany(usize),
    /// No bridge with pods fits in it. Only this node's own is refused for that.
    #[error(
        "its pod CIDR {subnet} has no address for a bridge and pods; assign it at most a /{longest}"
    )]
    TooSmall {
        /// The subnet.
        subnet: IpNet,
        /// The longest prefix that can be used.
        longest: u8,
    },
}

/// A lease, or what stands in its place, with its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name that later changes and the deletion carry: in etcd the last part of the key, in
    /// Kubernetes the Node's name.
    pub name: Arc<str>,
    /// When it was created, on a scale of the store; a renewal does not change it.
    pub created: i64,
    /// When it was last written, on the same scale. For a Node this equals `created`, because its
    /// heartbeats say nothing about its lease.
    pub modified: i64,
    /// The lease, or the reason the entry is none.
    pub lease: Result<Lease, BadLease>,
}

impl Entry {
    /// Reads a name and a value as etcd holds them.
    pub fn parse(name: &str, value: &[u8], created: i64, modified: i64) -> Self {
        let lease = name.parse().map_err(BadLease::Key).and_then(|key| {
            let attrs = LeaseAttrs::parse(value).map_err(BadLease::Value)?;
            Ok(Lease {
                key,
                attrs,
                remarks: None,
            })
        });
        Self {
            name: name.into(),
            created,
            modified,
            lease,
        }
    }

    /// An entry whose value is too large to be read.
    pub fn too_large(name: &str, limit: usize, created: i64, modified: i64) -> Self {
        Self {
            name: name.into(),
            created,
            modified,
            lease: Err(BadLease::TooLarge { limit }),
        }
    }
}
