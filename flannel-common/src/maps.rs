//! Names and capacities of the BPF maps. The kernel keeps fifteen bytes of a map's name.

/// Array indexed by IPv4 subnet number: [`crate::peer::PeerEntry`]. Sized at load time by the network; one element
/// where the family is off.
pub const PEERS: &str = "PEERS";
/// The same by IPv6 subnet number.
pub const PEERS6: &str = "PEERS6";
/// Hash from outer source address ([`crate::addr::Addr`]) of either family to [`crate::peer::VtepEntry`].
pub const VTEPS: &str = "VTEPS";
/// Array of one [`crate::mode::ModeWord`].
pub const MODE: &str = "MODE";
/// Array of one [`crate::node::NodeConfig`].
pub const CONFIG: &str = "CONFIG";
/// Per-CPU array of [`crate::stats::Counter`], indexed by [`crate::stats::slot`].
pub const STATS: &str = "STATS";

/// All maps of the object, in the order in which they are opened and pinned.
pub const ALL: [&str; 6] = [PEERS, PEERS6, VTEPS, MODE, CONFIG, STATS];

/// The most subnets [`PEERS`] or [`PEERS6`] indexes: a network of 2^17 subnets costs 12 MiB. Above that the node stays
/// in mode `kernel` and says so.
pub const PEERS_MAX: u32 = 1 << 17;

/// The only key of [`MODE`] and [`CONFIG`].
pub const ONLY: u32 = 0;
