//! Leases as annotations of Kubernetes Nodes, side by side with stock flannel nodes.
//!
//! [`KubeManager`] implements [`SubnetManager`](crate::SubnetManager). The cluster assigns each
//! Node its subnet (`spec.podCIDR`); a lease is that, with the annotations by which the node says
//! how it is reached. Our identity is the name of our Node. A Node is pruned while it is decoded
//! (`record`), and becomes the same entry a lease in etcd becomes (`entry`). Pods of this node may
//! opt out of mode `fast` (`pods`).

mod annotate;
mod condition;
mod connection;
mod entry;
mod error;
mod events;
mod items;
mod listing;
mod manager;
mod options;
mod pods;
mod position;
mod prefix;
#[cfg(test)]
mod properties;
mod prune;
mod record;
mod renewal;
mod settings;
mod source;
mod stream;
mod subnet_manager;

pub use self::{
    connection::client::Liveness,
    error::{KubeError, Problem},
    manager::KubeManager,
    options::{KubeOptions, NoIdentity, NodeIdentity},
    pods::lister::PodLister,
    prefix::{AnnotationPrefix, BadPrefix},
};
