//! Every program against real packets by `BPF_PROG_TEST_RUN`, over both families: one fixture per
//! reason it can give.
//!
//! The object is loaded by the agent's own loader. Not to be had here: a VLAN tag outside the
//! packet's bytes, a packet without a flow hash, `tc_index` and a rewrite between two reads; the
//! namespace suites and the arithmetic's tests have those.

mod batch;
mod bench;
mod ecmp_paths;
mod fast;
mod from_underlay;
mod guard;
mod load;
mod monitor;
mod oracle;
mod packets;
mod pool;
mod to_tunnel;
mod to_underlay;
mod trial;
mod wipe;
mod word;
