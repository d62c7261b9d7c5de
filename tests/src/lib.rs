//! The namespace lab: several nodes of a cluster on one kernel, and what the demo, the benches and
//! the end-to-end suites need to drive and to judge them.
//!
//! A [`Lab`] owns everything it makes; [`Node`], [`Pod`], [`Etcd`] and [`Agent`] are handles. A
//! node is a network namespace and a mount namespace with its own `/run`, `/sys` and `/sys/fs/bpf`,
//! so several agents with default paths never meet. Nothing here touches the machine's own
//! namespaces except one directory of records, `/run/flannel-lab/<lab>`, and that goes with the
//! lab.
//!
//! The lab needs root. It is one kernel and veth cables: it cannot show effects of drivers, of
//! offloads in a NIC and of other kernels.

pub mod agent;
pub mod bench;
pub mod cluster;
pub mod cni;
pub mod confined;
pub mod demo;
pub mod differential;
pub mod fast;
pub mod faults;
pub mod harness;
pub mod host;
pub mod kernel;
pub mod kubernetes;
pub mod lab;
pub mod load;
pub mod no_agent;
pub mod packet;
pub mod service_rules;
pub mod stock;

pub use agent::{
    Agent, AgentOptions, agent_binary, memory_limit::MemoryLimit, suspended::Clocks,
    tunnel_state::TunnelState,
};
pub use cluster::{
    etcd::Etcd,
    node::Node,
    nodes::{Nodes, ThreeNodes, TwoNodes},
    pair::Pair,
    pod::Pod,
};
pub use confined::Confinement;
pub use harness::{
    judged::judged,
    not_run::not_run,
    wait::{eventually, eventually_stable, throughout},
};
pub use host::{Host, Output};
pub use lab::{Lab, child::ChildGuard};
pub use stock::{
    mixed::Mixed,
    node::{StockEnd, StockNode},
};
