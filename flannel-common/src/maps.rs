//! Names and capacities of the BPF maps. The kernel keeps fifteen bytes of a map's name.

/// Array indexed by IPv4 subnet number: [`crate::peer::PeerEntry`]. Sized at load time by the network; one element
/// where the family is off.
pub const PEERS: &str = "PEERS";
/// The same by IPv6 subnet number.
pub const PEERS6: &str = "PEERS6";
/// Hash from outer source address ([`crate::addr::Addr`]) of either family to [`crate::peer::VtepEntry`].
pub const VTEPS: &str = "VTEPS";
/// Hash from [`crate::leg::LegKey`] to [`crate::leg::LegEntry`]: the devices by which packets to a peer may leave.
pub const LEGS: &str = "LEGS";
/// LRU hash from [`crate::class::PathKey`] to [`crate::peer::PathSeen`], for packets with a mark or a priority. The
/// programs' own: not pinned.
pub const PATHS: &str = "PATHS";
/// Array of one [`crate::mode::ModeWord`].
pub const MODE: &str = "MODE";
/// Array of one [`crate::node::NodeConfig`].
pub const CONFIG: &str = "CONFIG";
/// Per-CPU array of [`crate::stats::Counter`], indexed by [`crate::stats::slot`].
pub const STATS: &str = "STATS";

/// Array of one [`crate::fast::FastConfig`].
pub const FAST: &str = "FAST";
/// LRU hash from the end at which packets enter ([`crate::end::End`]) to [`crate::flow::Flow`].
pub const FLOWS: &str = "FLOWS";
/// The same for IPv6.
pub const FLOWS6: &str = "FLOWS6";
/// Array of [`crate::note::Note`]: [`crate::note::SLOTS_PER_CPU`] slots for each possible CPU. Sized at load time.
pub const NOTES: &str = "NOTES";
/// The same for IPv6.
pub const NOTES6: &str = "NOTES6";
/// Per-CPU array of one [`crate::note::CpuState`].
pub const CPUS: &str = "CPUS";
/// Hash from the interface index of a pod's veth to [`crate::fast::PodEntry`].
pub const PODS: &str = "PODS";
/// Array of 64-bit words, a bit for each port: [`crate::fast::port_bit`].
pub const HELPER_PORTS: &str = "HELPER_PORTS";
/// Array of [`crate::fast::Bucket`].
pub const BUCKETS: &str = "BUCKETS";

/// Array of one [`crate::guard::GuardWord`].
pub const GUARD: &str = "GUARD";
/// Hash set of [`crate::guard::DeviceKey`]; the values are zero.
pub const ELSEWHERE: &str = "ELSEWHERE";
/// LRU hash from an outer source address ([`crate::addr::Addr`]) to [`crate::guard::Suspect`].
pub const SUSPECTS: &str = "SUSPECTS";

/// Array of one [`crate::monitor::Monitor`].
pub const MONITOR: &str = "MONITOR";
/// Ring buffer of [`crate::monitor::Event`], each with the first bytes of its packet.
pub const EVENTS: &str = "EVENTS";
/// Per-CPU array of one [`crate::monitor::Missed`].
pub const MISSED: &str = "MISSED";
/// Array of one 64-bit word: until when packets are told of, `CLOCK_MONOTONIC` in nanoseconds. To the programs it is a
/// variable, so that looking at it takes no look-up; in the object it therefore has the name of a section.
pub const LEASE: &str = "LEASE";
/// The bpf filesystem takes no dot.
const LEASE_SECTION: &str = ".data.lease";

/// The name in the object of a map that is pinned under `name`.
pub fn in_object(name: &'static str) -> &'static str {
    if name == LEASE { LEASE_SECTION } else { name }
}

/// All maps of the object, in the order in which they are opened and pinned.
pub const ALL: [&str; 23] = [
    PEERS,
    PEERS6,
    VTEPS,
    LEGS,
    MODE,
    CONFIG,
    STATS,
    FAST,
    FLOWS,
    FLOWS6,
    NOTES,
    NOTES6,
    CPUS,
    PODS,
    HELPER_PORTS,
    BUCKETS,
    GUARD,
    ELSEWHERE,
    SUSPECTS,
    MONITOR,
    EVENTS,
    MISSED,
    LEASE,
];

/// The most sources [`SUSPECTS`] remembers; a flood of made-up ones pushes out the oldest.
pub const SUSPECTS_MAX: u32 = 1 << 10;

/// The most flows [`FLOWS`] or [`FLOWS6`] holds, at 150 bytes each, where the agent sizes them by the machine's memory.
pub const FLOWS_MAX: u32 = 1 << 17;

/// The most pods of a node.
pub const PODS_MAX: u32 = 1 << 12;

/// The most subnets [`PEERS`] or [`PEERS6`] indexes: a network of 2^17 subnets costs 12 MiB. Above that the node stays
/// in mode `kernel` and says so.
pub const PEERS_MAX: u32 = 1 << 17;

/// The most legs of all peers: two for each of 2^16 peers.
pub const LEGS_MAX: u32 = 1 << 17;

/// Capacity of [`PATHS`]: the kernel sets few priorities and a node's rules few marks.
pub const PATHS_MAX: u32 = 1 << 12;

/// The only key of [`MODE`] and [`CONFIG`].
pub const ONLY: u32 = 0;
