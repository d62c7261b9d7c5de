//! The same random rules and the same random traffic in mode `kernel` and in mode `fast`: what arrives, what is dropped and
//! every header field is equal, but for the differences that docs/fast-differences.md lists.
//!
//! `FLANNEL_DIFF_SEED=0x...` runs one seed, `FLANNEL_DIFF_MINUTES=N` fresh seeds for so long.

mod campaign;
mod lab;
mod report;
mod rules;
mod run;
mod tcp;
mod udp;

use anyhow::Result;

use crate::{campaign::run, lab::Topology};

#[test]
fn rules_and_traffic_over_the_tunnel() -> Result<()> {
    run(Topology::Vxlan)
}

#[test]
fn rules_and_traffic_to_direct_peers() -> Result<()> {
    run(Topology::Direct)
}

#[test]
fn rules_and_traffic_with_host_gw() -> Result<()> {
    run(Topology::HostGw)
}
