//! Names and capacities of the BPF maps. The kernel keeps fifteen bytes of a map's name.

/// Array indexed by subnet number: [`crate::peer::PeerEntry`]. Sized at load time by the network.
pub const PEERS: &str = "PEERS";
/// Hash from outer source address ([`crate::addr::Addr`]) to [`crate::peer::VtepEntry`].
pub const VTEPS: &str = "VTEPS";
/// Array of one [`crate::mode::ModeWord`].
pub const MODE: &str = "MODE";
/// Array of one [`crate::node::NodeConfig`].
pub const CONFIG: &str = "CONFIG";
/// Per-CPU array of [`crate::stats::Counter`], indexed by [`crate::stats::slot`].
pub const STATS: &str = "STATS";

/// All maps of the object, in the order in which they are opened and pinned.
pub const ALL: [&str; 5] = [PEERS, VTEPS, MODE, CONFIG, STATS];

/// The most subnets [`PEERS`] indexes: a network of 2^17 subnets costs 12 MiB. Above that the node stays in
/// mode `kernel` and says so.
pub const PEERS_MAX: u32 = 1 << 17;

/// The only key of [`MODE`] and [`CONFIG`].
pub const ONLY: u32 = 0;
