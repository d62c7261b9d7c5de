//! Packets that the kernel drops: its reasons, and where the program that reports them finds what
//! it reads. The agent takes both from the kernel's type information and sets them before it loads
//! the object.

use core::mem::size_of;

/// The kernel's reasons have numbers below this (`enum skb_drop_reason` has some 120).
pub const CODES: usize = 256;

macro_rules! kernel_drops {
    ($($number:literal $name:ident $kernel:literal $text:literal $doc:literal;)+) => {
        /// A reason for which the kernel drops packets of pods. Its own numbers change from version
        /// to version, ours do not.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum KernelDrop {
            $(#[doc = $doc] $name = $number,)+
        }

        impl KernelDrop {
            /// Every reason.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$name),+];

            /// The name in every output: the kernel's, in small letters and without its prefix.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The kernel's name ([include/net/dropreason-core.h, Linux
            /// 6.12](https://elixir.bootlin.com/linux/v6.12/source/include/net/dropreason-core.h)).
            pub const fn kernel_name(self) -> &'static str {
                match self { $(Self::$name => concat!("SKB_DROP_REASON_", $kernel),)+ }
            }
        }
    };
}

kernel_drops! {
    1 NetfilterDrop "NETFILTER_DROP" "netfilter_drop"
        "A rule of netfilter: a firewall, or a network policy.";
    2 ReversePathFilter "IP_RPFILTER" "ip_rpfilter"
        "No route leads back to the source by this device (rp_filter).";
    3 NoRouteIn "IP_INNOROUTES" "ip_innoroutes"
        "No route, for a packet that came in.";
    4 NoRouteOut "IP_OUTNOROUTES" "ip_outnoroutes"
        "No route, for a packet of the host itself.";
    5 AddressIn "IP_INADDRERRORS" "ip_inaddrerrors"
        "An address that no packet may have.";
    6 InvalidSource "IP_INVALID_SOURCE" "ip_invalid_source"
        "A source that no packet may have, such as a group's.";
    7 InvalidDestination "IP_INVALID_DEST" "ip_invalid_dest"
        "A destination that no packet may have.";
    8 LocalNet "IP_LOCALNET" "ip_localnet"
        "An address of the loopback network on another device.";
    9 LocalSource "IP_LOCAL_SOURCE" "ip_local_source"
        "An address of the host as source, from outside.";
    10 Header "IP_INHDR" "ip_inhdr"
        "An IP header with an error.";
    11 HeaderChecksum "IP_CSUM" "ip_csum"
        "An IP header with a wrong checksum.";
    12 Ipv6Disabled "IPV6DISABLED" "ipv6disabled"
        "IPv6 is disabled on the device.";
    13 TooBig "PKT_TOO_BIG" "pkt_too_big"
        "Larger than the MTU of the next device.";
    14 XfrmPolicy "XFRM_POLICY" "xfrm_policy"
        "An IPsec policy wants it otherwise.";
    15 NeighbourFailed "NEIGH_FAILED" "neigh_failed"
        "The next hop does not answer ARP or neighbour solicitation.";
    16 NeighbourTable "NEIGH_CREATEFAIL" "neigh_createfail"
        "The neighbour table is full.";
    17 NeighbourQueue "NEIGH_QUEUEFULL" "neigh_queuefull"
        "Too many packets wait for the answer of the next hop.";
    18 NeighbourDead "NEIGH_DEAD" "neigh_dead"
        "The neighbour entry has just been removed.";
    19 Qdisc "QDISC_DROP" "qdisc_drop"
        "A queueing discipline, such as a rate limit or a full queue.";
    20 QdiscOverlimit "QDISC_OVERLIMIT" "qdisc_overlimit"
        "A queueing discipline whose limit is reached.";
    21 RingFull "FULL_RING" "full_ring"
        "The receive ring of a device in software is full.";
    22 Backlog "CPU_BACKLOG" "cpu_backlog"
        "The backlog of a CPU is full (netdev_max_backlog).";
    23 DeviceDown "DEV_READY" "dev_ready"
        "The device is not ready.";
    24 NoMemory "NOMEM" "nomem"
        "No memory.";
    25 VxlanNoRemote "VXLAN_NO_REMOTE" "vxlan_no_remote"
        "The vxlan device has no entry for the destination's MAC address.";
    26 VxlanUnknownVni "VXLAN_VNI_NOT_FOUND" "vxlan_vni_not_found"
        "No vxlan device has this VNI.";
}

impl KernelDrop {
    /// The reason with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Offsets in the kernel's structs in bytes, the network namespace of the node, and the reasons to
/// report. All zero: the numbers are not known, and the program reports no drop.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropLayout {
    /// `sk_buff.head`: the beginning of the packet's memory.
    pub head: u32,
    /// `sk_buff.network_header`: from there to the IP header.
    pub network_header: u32,
    /// `sk_buff.protocol`.
    pub protocol: u32,
    /// `sk_buff.len`.
    pub len: u32,
    /// `sk_buff.dev`.
    pub device: u32,
    /// `sk_buff.sk`.
    pub socket: u32,
    /// `net_device.ifindex`.
    pub ifindex: u32,
    /// `net_device.nd_net`.
    pub device_net: u32,
    /// `sock.__sk_common.skc_net`.
    pub socket_net: u32,
    /// `net.ns.inum`: the number of a network namespace.
    pub inode: u32,
    /// The number of the node's network namespace.
    pub netns: u32,
    /// Zero.
    pub reserved: u32,
    /// [`KernelDrop`] by the kernel's number; zero for one that is not reported.
    pub codes: [u8; CODES],
}

impl DropLayout {
    /// The unknown layout.
    pub const UNKNOWN: Self = Self {
        head: 0,
        network_header: 0,
        protocol: 0,
        len: 0,
        device: 0,
        socket: 0,
        ifindex: 0,
        device_net: 0,
        socket_net: 0,
        inode: 0,
        netns: 0,
        reserved: 0,
        codes: [0; CODES],
    };

    /// Returns true if the program can find packets, and their reasons.
    pub const fn is_known(&self) -> bool {
        self.inode != 0
    }
}

const _: () = assert!(size_of::<DropLayout>() == 48 + CODES);

#[cfg(test)]
mod tests {
    use super::KernelDrop;

    #[test]
    fn numbers_and_names_are_those_of_the_kernel() {
        for (reason, number) in KernelDrop::ALL.into_iter().zip(1..) {
            assert_eq!(
                (reason as u8, KernelDrop::from_number(number)),
                (number, Some(reason))
            );
            let name = reason
                .kernel_name()
                .strip_prefix("SKB_DROP_REASON_")
                .expect("the kernel's prefix");
            assert_eq!(name.to_lowercase(), reason.name());
        }
        assert_eq!(
            (KernelDrop::from_number(0), KernelDrop::from_number(u8::MAX)),
            (None, None)
        );
    }
}
