//! Traffic rules on the real kernel, by the real tools, with those tools' own listings as the
//! oracle.
//!
//! Each test runs on a thread in its own network namespace, which goes away with the thread. The
//! tests need root; without it, or without a tool, they say so and return.

mod blackhole;
mod engine;
mod iptables;
mod nftables;
#[path = "../../../../tests/support/not_run.rs"]
mod not_run;
#[path = "../../../../tests/support/namespace.rs"]
mod shared;
mod support;
