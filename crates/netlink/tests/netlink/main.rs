//! The netlink verbs against the real kernel, with `ip` and `bridge` as the oracle.
//!
//! Each test runs on a thread in a separate network namespace, which ends with the thread. They
//! need root; without it they say so and return.

mod entries;
mod events;
mod links;
#[path = "../../../../tests/support/netlink.rs"]
mod namespace;
mod nexthops;
#[path = "../../../../tests/support/not_run.rs"]
mod not_run;
mod peers;
mod policy;
mod routes;
#[path = "../../../../tests/support/namespace.rs"]
mod shared;
mod trace;
