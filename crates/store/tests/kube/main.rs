//! The Kubernetes subnet manager against an API server.
//!
//! Suites run against a double that speaks HTTP on loopback and fails on demand
//! (`support::api_server`). Those without faults also run against a real kube-apiserver, when
//! KUBE_APISERVER and ETCD name the binaries. Clusters in one server are distinguished by their
//! annotation prefix.

mod acquire;
mod condition;
mod conflict;
mod families;
mod follow;
mod hold;
mod opt_out;
mod outage;
mod pod_lister;
mod settings;
mod streams;
mod support;
