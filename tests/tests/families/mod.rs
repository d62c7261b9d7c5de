//! IPv6-only and dual-stack clusters in addition to IPv4-only ones, and backends without a tunnel.

mod alloc;
mod cleanup;
mod direct;
mod drift;
mod host_gw;
mod interface;
mod mixed;
mod mtu;
mod reach;
mod refused;

use flannel_tests::cluster::HOST_GW;

/// The backend with tunnels, and nothing else about it.
const VXLAN: &str = r#"{"Type":"vxlan"}"#;
/// The same with plain routes between neighbours.
const DIRECT_ROUTING: &str = r#"{"Type":"vxlan","DirectRouting":true}"#;
