//! The etcd subnet manager against a real etcd: Debian's `etcd` on loopback, with a temporary data
//! directory.
//!
//! Tests share one server, each under its own prefix; those that stop or wipe it start their own.
//! Without the binary they print that and do not run.

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
