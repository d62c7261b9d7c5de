//! The etcd subnet manager against a real etcd: Debian's `etcd` on loopback, with a data directory
//! of its own.
//!
//! Tests share one server, each under its own prefix; those that stop or wipe it start their own.
//! Without the binary they say so and do nothing.

mod acquire;
mod contested;
mod families;
mod follow;
mod hold;
mod identity;
mod large;
mod out_of_space;
mod outage;
mod replaced;
mod support;
mod tls;
