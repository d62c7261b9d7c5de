//! The flows of a node, by the observer API of [Hubble](https://github.com/cilium/hubble): the
//! gRPC services `observer.Observer`, `peer.Peer` and `grpc.health.v1.Health`.
//!
//! The messages ([`flow`], [`observer`], [`peer`]) have the fields that this crate fills or reads,
//! with the numbers that Cilium publishes in
//! [api/v1](https://github.com/cilium/cilium/tree/v1.19.4/api/v1). The caller pushes flows into a
//! [`FlowRing`]; clients read it through a [`Server`].
//!
//! Invariants: the ring is bounded, and a client that is too slow gets the number of flows that it
//! missed; a filter that is not supported is refused, and never ignored; no message has payload of
//! packets. [`Demand`] shows the caller when no client reads, so that it can stop.

mod demand;
mod filter;
pub mod flow;
mod health;
mod listen;
pub mod observer;
pub mod peer;
mod ring;
mod service;
mod stream;
mod tls;

pub use demand::Demand;
pub use listen::{ListenError, Listener, Server};
pub use ring::FlowRing;
pub use service::{NodeFacts, ObserverService};
pub use tls::{TlsError, TlsFiles};

#[cfg(test)]
mod tests;
