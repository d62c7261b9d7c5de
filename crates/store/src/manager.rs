//! The agent's requests to a store, and the store's reports.

use std::{error::Error, fmt, net::IpAddr, sync::Arc};

use flannel_host::clock::BootTime;
use ipnet::IpNet;
use tokio::sync::{mpsc, watch};

use super::{
    Entry, Hints, LeaseAttrs, LeaseKey, NetworkAvailability, NodeMemory, NodeReports, NodeSettings,
    OptOuts, Precedence, StoreCounts,
};
use crate::config::{ConfigError, NetworkConfig};

/// A request to the store: a subnet under this configuration, published with these attributes.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The cluster's configuration.
    pub config: NetworkConfig,
    /// Our attributes, with a public address of each family that is on.
    pub attrs: LeaseAttrs,
    /// The subnets held before, from subnet.env; asked for again if they are free, or if their
    /// lease is our own.
    pub previous: Option<LeaseKey>,
}

/// The lease we hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLease {
    /// Our subnets.
    pub key: LeaseKey,
    /// When the store drops it unless it is renewed, or earlier; `None` for one that stays.
    pub expires_at: Option<BootTime>,
}

impl OwnLease {
    /// Returns true if the lease has expired at `now`. The store may then have given the subnet to
    /// another node, until it reports otherwise.
    pub fn has_lapsed(&self, now: BootTime) -> bool {
        self.expires_at.is_some_and(|expiry| expiry <= now)
    }
}

/// No subnet is left to lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of subnets: every /{subnet_len} from {first} to {last} of the network {network} is \
     leased; enlarge the \
     network or remove leases of nodes that are gone"
)]
pub struct OutOfSubnets {
    /// The pod network.
    pub network: IpNet,
    /// The length of a node's subnet.
    pub subnet_len: u8,
    /// The first subnet of the range (`SubnetMin`).
    pub first: IpAddr,
    /// The last subnet of the range (`SubnetMax`).
    pub last: IpAddr,
}

/// The subnet assigned to this node is not in the pod network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {node} has the pod CIDR {subnet}, which is not in the network {network}; make the \
     network configuration agree \
     with the cluster's pod CIDR"
)]
pub struct OutsideNetwork {
    /// The node.
    pub node: String,
    /// Its subnet.
    pub subnet: IpNet,
    /// The pod network.
    pub network: IpNet,
}

/// Another machine has our public address and holds a lease with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another machine has our public address {address}: it holds the lease {lease:?} with it ({by}) \
     and answers; give one \
     of the two another address (--iface, --public-ip)"
)]
pub struct AddressTaken {
    /// The address.
    pub address: IpAddr,
    /// The name of the lease.
    pub lease: String,
    /// By what the other machine is known.
    pub by: String,
}

/// Reasons a lease could not be acquired. `E` is the store's error.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError<E: Error> {
    /// The store failed; it may answer later.
    #[error(transparent)]
    Store(E),
    /// No subnet is left.
    #[error(transparent)]
    OutOfSubnets(#[from] OutOfSubnets),
    /// The subnet assigned to us is not in the pod network.
    #[error(transparent)]
    OutsideNetwork(#[from] OutsideNetwork),
    /// Another machine has our public address.
    #[error(transparent)]
    AddressTaken(#[from] AddressTaken),
    /// Others were faster, each time.
    #[error(
        "the leases changed under each of {tries} attempts to acquire one; the store is busy, try \
         again"
    )]
    Conflict {
        /// The number of attempts.
        tries: u32,
    },
}

/// The ways to lose our lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostCause {
    /// The key is gone: it expired, or a user deleted it.
    Deleted,
    /// Kubernetes: the Node is gone.
    NodeDeleted,
    /// Kubernetes: the Node has another subnet.
    Reassigned {
        /// The new one.
        to: LeaseKey,
    },
    /// Kubernetes: the Node has no usable subnet any more.
    Unassigned {
        /// The reason, as text.
        reason: String,
    },
    /// Another node, of this address if it has one, wrote the key.
    TakenOver {
        /// The new owner.
        by: Option<IpAddr>,
    },
    /// Another machine with our public address wrote the key.
    SameAddress {
        /// By what it is known.
        by: String,
    },
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted => f.write_str("deleted or expired"),
            Self::NodeDeleted => f.write_str("the Node was deleted"),
            Self::Reassigned { to } => write!(f, "the Node's subnet is {to} now"),
            Self::Unassigned { reason } => f.write_str(reason),
            Self::TakenOver { by: Some(by) } => write!(f, "taken over by {by}"),
            Self::SameAddress { by } => {
                write!(
                    f,
                    "taken over by another machine with our public address ({by}); give one of the \
                     two another"
                )
            }
            Self::TakenOver { by: None } => {
                f.write_str("overwritten by a client without a public address")
            }
        }
    }
}

/// The reports of a store, sent in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// All entries of the store. Changes follow.
    InSync {
        /// The entries. Ours is among them, unless the store identifies it by something other than
        /// its content.
        snapshot: Vec<Arc<Entry>>,
    },
    /// A new or changed entry.
    Put(Arc<Entry>),
    /// An entry is gone.
    Delete {
        /// Its name.
        name: Arc<str>,
    },
    /// Changes may be missing after this event. Known entries stay valid; [`Self::Resumed`] or
    /// [`Self::InSync`] follows when the store is back.
    OutOfSync {
        /// The cause, as text for the log and for users.
        reason: String,
    },
    /// The stream of changes continues where it broke off, without a gap.
    Resumed,
    /// We hold this lease now: renewed, changed in the store, or acquired again (maybe with another
    /// key).
    OwnLease(OwnLease),
    /// Our lease is lost. Acquiring again is under way; [`Self::OwnLease`] follows.
    OwnLeaseLost {
        /// The subnets lost.
        key: LeaseKey,
        /// The way it was lost.
        cause: LostCause,
    },
    /// No lease could be acquired in place of the lost one; acquiring goes on.
    NotAcquired {
        /// The reason, as text.
        reason: String,
        /// True if another machine with our public address holds our lease.
        address_taken: bool,
    },
    /// Another machine with our public address asked for our lease or wrote it; it is still ours.
    Contested {
        /// By what the other machine is known.
        by: String,
    },
    /// The settings of this node are others now than [`SubnetManager::hints`] returned, or than the
    /// last such event had.
    Settings(NodeSettings),
}

/// A store of leases.
pub trait SubnetManager: Send + Sized + 'static {
    /// The store's error.
    type Error: Error + Send + Sync + 'static;

    /// True if the store assigns our subnet, so that its length is the store's choice and not the
    /// configuration's.
    const ASSIGNS_SUBNETS: bool = false;

    /// The rule for which of several leases with one VTEP MAC is accepted.
    const PRECEDENCE: Precedence;

    /// The text of the network configuration. An absent configuration is an error like an absent
    /// store.
    fn network_config(&mut self) -> impl Future<Output = Result<String, Self::Error>> + Send;

    /// Reads that text. Where the store assigns the subnets, its rules about cutting the network do
    /// not apply.
    fn parse_config(text: &str) -> Result<NetworkConfig, ConfigError> {
        if Self::ASSIGNS_SUBNETS {
            NetworkConfig::parse_assigned(text)
        } else {
            NetworkConfig::parse(text)
        }
    }

    /// Returns the facts the store remembers of this node.
    fn hints(&mut self) -> impl Future<Output = Result<Hints, Self::Error>> + Send {
        std::future::ready(Ok(Hints::default()))
    }

    /// Takes reports of whether this node's pod network works; [`Self::run`] publishes them.
    fn network_availability(&mut self) -> NetworkAvailability {
        NetworkAvailability::unpublished()
    }

    /// Takes reports of what is wrong with this node. To be asked once a lease is held.
    fn node_reports(&mut self) -> NodeReports {
        NodeReports::unpublished()
    }

    /// Returns the channel that reports which pods of this node stay out of mode `fast`, for a
    /// store that knows. To be asked once a lease is held.
    fn opt_outs(&mut self) -> OptOuts {
        OptOuts::never()
    }

    /// Counts here from now on what [`Self::run`] does.
    fn count_with(&mut self, counts: StoreCounts);

    /// Keeps a record of our lease there, and reads the record of the last run.
    fn remember_in(&mut self, memory: NodeMemory) {
        drop(memory);
    }

    /// Acquires a lease: our former one where possible.
    fn acquire(
        &mut self,
        request: &LeaseRequest,
    ) -> impl Future<Output = Result<OwnLease, AcquireError<Self::Error>>> + Send;

    /// Reports all leases and their changes, and keeps ours: renews it, acquires a lost one again,
    /// and publishes `attrs` again when they change (they start as those of the request). Ends only
    /// when the receiver of events is gone.
    fn run(
        self,
        request: LeaseRequest,
        attrs: watch::Receiver<LeaseAttrs>,
        events: mpsc::Sender<StoreEvent>,
    ) -> impl Future<Output = ()> + Send + 'static;
}
