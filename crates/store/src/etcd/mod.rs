//! Leases in etcd, by its [v3 API](https://etcd.io/docs/v3.5/learning/api/), side by side with
//! stock flannel nodes.
//!
//! [`EtcdManager`] implements [`SubnetManager`](crate::SubnetManager). Where flannel writes blindly
//! we compare first: a key is created only if absent, and rewritten only as long as its last change
//! is known to us. A key without an etcd lease is a reservation and stays one. The lifetime of a
//! lease is asked of etcd only for our own key. Which lease is ours is for `choose` to say, and
//! `claim` asks its holder where another machine may have what we go by.

mod cause;
mod client;
mod directory;
mod error;
mod keys;
mod lease;
mod listing;
mod manager;
mod meeting;
mod options;
mod position;
#[cfg(test)]
mod properties;
mod source;
mod subnet_manager;
mod tls;
mod verify;

pub use self::{
    client::Liveness,
    directory::{LeaseDirectory, ListedLease},
    error::{EtcdError, Problem},
    manager::EtcdManager,
    meeting::MeetingPlace,
    options::{Credentials, EtcdOptions},
    tls::{ClientFiles, TlsError, TlsFiles},
};
