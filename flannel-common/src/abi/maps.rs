//! Names and capacities of the BPF maps. The kernel keeps fifteen bytes of a map's name
//! (`BPF_OBJ_NAME_LEN` in [include/uapi/linux/bpf.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/bpf.h)).

/// Array indexed by IPv4 subnet number: [`crate::abi::peer::PeerEntry`]. Sized at load time by the
/// network; one element where the family is off.
pub const PEERS: &str = "PEERS";
/// The same by IPv6 subnet number.
pub const PEERS6: &str = "PEERS6";
/// Hash from outer source address ([`crate::packet::addr::Addr`]) of either family to
/// [`crate::abi::peer::VtepEntry`].
pub const VTEPS: &str = "VTEPS";
/// Hash from [`crate::abi::ecmp::EcmpPathKey`] to [`crate::abi::ecmp::EcmpPath`]: the devices by
/// which packets to a peer may leave.
pub const ECMP_PATHS: &str = "ECMP_PATHS";
/// LRU hash from [`crate::flow::class::PathKey`] to [`crate::abi::peer::PathProbe`], for packets
/// with a mark or a priority. The programs' own: not pinned.
pub const PATHS: &str = "PATHS";
/// LRU hash from [`crate::abi::reception::ReceptionKey`] to [`crate::abi::reception::Reception`].
/// The programs' own: not pinned.
pub const RECEPTIONS: &str = "RECEPTIONS";
/// Array of one [`crate::abi::mode::ModeWord`].
pub const MODE: &str = "MODE";
/// Array of one [`crate::abi::node::NodeConfig`].
pub const CONFIG: &str = "CONFIG";
/// Per-CPU array of [`crate::abi::stats::Counter`], indexed by [`crate::abi::stats::slot`].
pub const STATS: &str = "STATS";
/// Per-CPU array of [`crate::abi::traffic::PeerTraffic`], indexed by
/// [`crate::abi::peer::PeerEntry::traffic`]. Sized at load time by the network; one element where
/// the family is off.
pub const PEER_TRAFFIC: &str = "PEER_TRAFFIC";
/// The same for IPv6.
pub const PEER_TRAFFIC6: &str = "PEER_TRAFFIC6";
/// Per-CPU array of [`crate::abi::stats::Counter`], indexed by
/// [`crate::abi::fast::PodEntry::traffic`]: packets that were put into a pod past the host side of
/// its veth, whose own counters lack them.
pub const POD_TRAFFIC: &str = "POD_TRAFFIC";

/// Array of one [`crate::abi::fast::FastConfig`].
pub const FAST: &str = "FAST";
/// LRU hash from the end at which packets enter ([`crate::flow::flow_key::FlowKey`]) to
/// [`crate::flow::Flow`].
pub const FLOWS: &str = "FLOWS";
/// The same for IPv6.
pub const FLOWS6: &str = "FLOWS6";
/// Array of [`crate::flow::probation::ProbationSlot`], by
/// [`crate::flow::probation::ProbationSlot::of`] a key.
pub const PROBATION: &str = "PROBATION";
/// The same for IPv6.
pub const PROBATION6: &str = "PROBATION6";
/// Array of [`crate::flow::flow_hint::FlowHint`], by the same number as [`PROBATION`].
pub const FLOW_HINTS: &str = "FLOW_HINTS";
/// The same for IPv6.
pub const FLOW_HINTS6: &str = "FLOW_HINTS6";
/// Array of [`crate::flow::pending::PendingPacket`]: [`crate::flow::pending::SLOTS_PER_CPU`] slots
/// for each possible CPU. Sized at load time.
pub const PENDING: &str = "PENDING";
/// The same for IPv6.
pub const PENDING6: &str = "PENDING6";
/// Per-CPU array of one [`crate::flow::pending::CpuState`].
pub const CPU_STATE: &str = "CPU_STATE";
/// Hash from the interface index of a pod's veth to [`crate::abi::fast::PodEntry`].
pub const PODS: &str = "PODS";
/// Array of 64-bit words, a bit for each port: [`crate::abi::fast::port_bit`].
pub const HELPER_PORTS: &str = "HELPER_PORTS";
/// Array of [`crate::abi::fast::Bucket`].
pub const LEARN_BUCKETS: &str = "LEARN_BUCKETS";
/// LRU hash from the key of a TCP flow, its device zero, to the device by which its packets enter:
/// a packet with the same addresses and ports that enters elsewhere is forged.
pub const ENTRANCES: &str = "ENTRANCES";
/// The same for IPv6.
pub const ENTRANCES6: &str = "ENTRANCES6";
/// Array of [`crate::flow::arrival::ArrivalNote`], sized as [`PENDING`].
pub const ARRIVALS: &str = "ARRIVALS";
/// Ring buffer of [`crate::flow::connection::Connection`].
pub const CONNECTIONS: &str = "CONNECTIONS";

/// Array of one [`crate::abi::guard::GuardWord`].
pub const GUARD: &str = "GUARD";
/// Hash set of [`crate::abi::guard::DeviceKey`]; the values are zero.
pub const NAT_VTEPS: &str = "NAT_VTEPS";
/// LRU hash from an outer source address ([`crate::packet::addr::Addr`]) to
/// [`crate::abi::guard::Violation`].
pub const VIOLATIONS: &str = "VIOLATIONS";

/// Array of one [`crate::abi::monitor::Monitor`].
pub const MONITOR: &str = "MONITOR";
/// Ring buffer of [`crate::abi::monitor::Event`], each with the first bytes of its packet.
pub const EVENTS: &str = "EVENTS";
/// Per-CPU array of one [`crate::abi::monitor::Missed`].
pub const MISSED: &str = "MISSED";
/// Array of one 64-bit word: until when events are written, `CLOCK_MONOTONIC` in nanoseconds. To
/// the programs it is a variable, so that looking at it takes no look-up; in the object it
/// therefore has the name of a section.
pub const MONITOR_DEADLINE: &str = "MONITOR_DEADLINE";
/// The bpf filesystem takes no dot.
const MONITOR_DEADLINE_SECTION: &str = ".data.lease";

/// The name in the object of a map that is pinned under `name`.
pub fn in_object(name: &'static str) -> &'static str {
    if name == MONITOR_DEADLINE {
        MONITOR_DEADLINE_SECTION
    } else {
        name
    }
}

/// All maps of the object, in the order in which they are opened and pinned.
pub const ALL: [&str; 34] = [
    PEERS,
    PEERS6,
    VTEPS,
    ECMP_PATHS,
    MODE,
    CONFIG,
    STATS,
    PEER_TRAFFIC,
    PEER_TRAFFIC6,
    POD_TRAFFIC,
    FAST,
    FLOWS,
    FLOWS6,
    PROBATION,
    PROBATION6,
    FLOW_HINTS,
    FLOW_HINTS6,
    PENDING,
    PENDING6,
    CPU_STATE,
    PODS,
    HELPER_PORTS,
    LEARN_BUCKETS,
    ENTRANCES,
    ENTRANCES6,
    ARRIVALS,
    CONNECTIONS,
    GUARD,
    NAT_VTEPS,
    VIOLATIONS,
    MONITOR,
    EVENTS,
    MISSED,
    MONITOR_DEADLINE,
];

/// The most sources [`VIOLATIONS`] remembers; a flood of made-up ones pushes out the oldest.
pub const VIOLATIONS_MAX: u32 = 1 << 10;

/// The most flows [`FLOWS`] or [`FLOWS6`] holds, at 328 bytes each (IPv6: 400), those in
/// [`ENTRANCES`] included, where the agent sizes them by the machine's memory.
pub const FLOWS_MAX: u32 = 1 << 17;

/// The most pods of a node.
pub const PODS_MAX: u32 = 1 << 12;

/// The most subnets [`PEERS`] or [`PEERS6`] indexes: a network of 2^17 subnets costs 12 MiB. Above
/// that the node stays in mode `kernel` and says so.
pub const PEERS_MAX: u32 = 1 << 17;

/// The most ECMP paths of all peers: two for each of 2^16 peers.
pub const ECMP_PATHS_MAX: u32 = 1 << 17;

/// Capacity of [`PATHS`]: the kernel sets few priorities and a node's rules few marks.
pub const PATHS_MAX: u32 = 1 << 12;

/// The only key of [`MODE`] and [`CONFIG`].
pub const ONLY: u32 = 0;
