//! The same random rules and the same random traffic in mode `kernel` and in mode `fast`: what
//! arrives, what is dropped and every header field is equal, but for the differences that
//! docs/reference/fast-differences.md lists.
//!
//! `FLANNEL_DIFF_SEED=0x...` runs one seed, `FLANNEL_DIFF_MINUTES=N` fresh seeds for so long.
//! `FLANNEL_DIFF_MODE=kernel` compares mode `kernel` with itself: what it finds is noise.

mod campaign;
mod lab;
mod report;
mod rules;
mod run;
mod tcp;
mod udp;

use std::env;

use anyhow::Result;

use self::{campaign::run, lab::Topology};

#[test]
fn rules_and_traffic_over_the_tunnel() -> Result<()> {
    run(Topology::Vxlan, &mode())
}

#[test]
fn rules_and_traffic_over_a_tunnel_in_a_tunnel() -> Result<()> {
    run(Topology::Nested, &mode())
}

#[test]
fn rules_and_traffic_in_mode_encap() -> Result<()> {
    run(Topology::Vxlan, "encap")
}

#[test]
fn rules_and_traffic_to_direct_peers() -> Result<()> {
    run(Topology::Direct, &mode())
}

#[test]
fn rules_and_traffic_with_host_gw() -> Result<()> {
    run(Topology::HostGw, &mode())
}

#[test]
fn rules_and_traffic_with_wireguard() -> Result<()> {
    run(Topology::Wireguard, &mode())
}

#[test]
fn rules_and_traffic_with_the_outside() -> Result<()> {
    run(Topology::Outside, &mode())
}

/// The mode that is compared with mode `kernel`.
fn mode() -> String {
    env::var("FLANNEL_DIFF_MODE").unwrap_or_else(|_| "fast".to_owned())
}
