//! IPv6-only and dual-stack clusters beside IPv4-only ones, and backends without a tunnel.

mod reach;
