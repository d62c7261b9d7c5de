//! Load and faults: the benches, faults of the store and of the node, connections that stay idle,
//! and an agent with a memory limit.

mod bench;
mod faults;
mod idle_connections;
mod memory_limit;
