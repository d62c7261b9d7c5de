//! Leases: which node holds which subnet, and how packets reach it.
//!
//! There are three layers. Data as it stands in the store: [`LeaseKey`], [`LeaseAttrs`], [`Entry`].
//! The pure [`LeaseSet`], which decides from all entries which peers are accepted. The
//! [`SubnetManager`], which talks to a store ([`etcd`], [`kube`]) and keeps our own lease alive. In
//! addition to leases, a store may know pods that stay out of mode `fast` ([`OptOuts`]). This crate
//! does not touch the kernel. [`SubnetEnv`] handles subnet.env, [`config`] the network
//! configuration.

#![forbid(unsafe_code)]

mod attrs;
mod availability;
mod backoff;
pub mod config;
mod counts;
mod entry;
pub mod etcd;
mod hints;
mod key;
pub mod kube;
mod log_throttle;
mod manager;
mod memory;
mod node_reports;
mod node_settings;
mod off_thread;
mod opt_outs;
mod precedence;
#[cfg(test)]
mod properties;
mod set;
mod start;
mod subnet_env;
mod watcher;

pub use self::{
    attrs::{BadAttrs, EndMatch, LeaseAttrs, RawJson, VxlanData, WireguardData, tunnel_end},
    availability::NetworkAvailability,
    backoff::{Backoff, Delays},
    counts::StoreCounts,
    entry::{BadLease, BadPodCidr, Entry, Lease, Remarks},
    hints::Hints,
    key::{BadKey, LeaseKey},
    log_throttle::LogThrottle,
    manager::{
        AcquireError, AddressTaken, LeaseRequest, LostCause, OutOfSubnets, OutsideNetwork,
        OwnLease, StoreEvent, SubnetManager,
    },
    memory::NodeMemory,
    node_reports::{NodeReport, NodeReports},
    node_settings::{ModeSetting, NodeSetting, NodeSettings, SettingValue},
    opt_outs::{OptOuts, PodOptOuts},
    precedence::Precedence,
    set::{
        AddressFault, Changes, Conflict, EndId, HostAddresses, LeaseSet, Peer, RejectReason,
        Rejected, Resolved, TunnelEnd, Vtep, WireguardEnd,
    },
    start::{wait_for_config, wait_for_hints, wait_for_lease},
    subnet_env::{SubnetEnv, read_previous, read_previous_networks},
};
