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
pub mod agent_log;
pub mod bench;
pub mod cluster;
pub mod cni;
pub mod confined;
pub mod conntrack;
pub mod demo;
pub mod differential;
mod drift;
pub mod etcd;
pub mod fast;
pub mod faulty_card;
pub mod faulty_proxy;
pub mod helm;
pub mod hooks;
pub mod host;
mod http;
pub mod judged;
pub mod kernel;
pub mod kubernetes;
pub mod lab;
pub mod lab_record;
pub mod lease;
pub mod link;
pub mod load;
mod memory_limit;
pub mod mixed;
pub mod monitor;
pub mod netfilter_program;
mod nfnetlink;
pub mod no_agent;
pub mod node;
pub mod nodes;
pub mod not_run;
pub mod packet;
pub mod pair;
pub mod picture;
pub mod pins;
pub mod pod;
pub mod pressure;
pub mod service_rules;
pub mod snapshot;
pub mod stock;
pub mod stock_node;
pub mod subnet_env;
pub mod suspended;
pub mod topology;
pub mod tunnel_state;
pub mod variable;
pub mod wait;
pub mod wire;
pub mod xdp;

pub use agent::{Agent, AgentOptions, agent_binary};
pub use confined::Confinement;
pub use etcd::Etcd;
pub use host::{Host, Output};
pub use judged::judged;
pub use lab::Lab;
pub use lab::child::ChildGuard;
pub use memory_limit::MemoryLimit;
pub use mixed::Mixed;
pub use node::Node;
pub use nodes::{Nodes, ThreeNodes, TwoNodes};
pub use not_run::not_run;
pub use pair::Pair;
pub use pod::Pod;
pub use stock_node::{StockEnd, StockNode};
pub use suspended::Clocks;
pub use tunnel_state::TunnelState;
pub use wait::{eventually, eventually_stable, throughout};
