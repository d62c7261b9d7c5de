//! All leases of the cluster, and the verdict on each.
//!
//! Pure. The set keeps every entry the store has, valid or not. The peers depend only on the
//! content of the set and not on how it came about, so a resync and a stream of changes cannot
//! disagree, and the deletion of an entry admits those it kept out. [`LeaseSet::changes`] judges
//! again what changed and what that is tied to; the other entries keep their verdict.
//!
//! A bad entry is refused without effect on others, with a reason, and stays listed until it is
//! deleted or corrected.

mod changes;
mod check;
mod conflicts;
mod dirty_set;
mod end;
mod end_id;
mod lease_family;
mod lease_set;
mod named;
mod node_address;
mod peer;
mod reject;
mod resolve;
mod updates;

#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;

pub use self::{
    changes::Changes,
    end::{TunnelEnd, Vtep, WireguardEnd},
    end_id::EndId,
    lease_set::LeaseSet,
    node_address::{AddressFault, HostAddresses},
    peer::Peer,
    reject::{Conflict, RejectReason, Rejected},
    resolve::Resolved,
};
