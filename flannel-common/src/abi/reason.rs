//! The reasons of verdicts. The numbers index the statistics and name metric labels: they are
//! append-only, and a retired one keeps its place.

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On to the next program or the kernel, untouched (`TC_ACT_UNSPEC` of
    /// [include/uapi/linux/pkt_cls.h, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/pkt_cls.h), which is
    /// `TCX_NEXT`).
    Pass,
    /// Sent on by the program itself (`TC_ACT_REDIRECT`).
    Redirect,
    /// Dropped (`TC_ACT_SHOT`).
    Drop,
}

impl Verdict {
    /// The name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Redirect => "redirect",
            Self::Drop => "drop",
        }
    }
}

/// The result of the look-up of a flow, where known flows are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The flow is known, and its packet was replayed.
    Hit,
    /// The flow is not known, or its packet could not be replayed.
    Miss,
    /// No flow was looked up.
    Absent,
}

/// The sender of a packet at the external interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// Known to be a peer, or of no concern to the guard.
    Known,
    /// Not examined yet: the guard checks it.
    Open,
}

/// The view of the network that the sender of a packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// As this node's, if anything is known of it.
    Agrees,
    /// Another one: leases differ, or packets are forged.
    Differs,
}

/// The outer headers of a tunnel packet that is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    /// The kernel takes them off.
    Kept,
    /// The program may take them off.
    TakenOff,
}

macro_rules! reasons {
    ($(
        $number:literal $name:ident $text:literal $verdict:ident $lookup:ident $sender:ident
        $view:ident $outer:ident $doc:literal;
    )+) => {
        /// The outcome of one program for one packet.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $doc] $name = $number,)+
        }

        impl Reason {
            /// Every reason, by number.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$name),+];

            /// The stable name: in tables, JSON and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Returns the meaning of the reason, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)+ }
            }

            /// The one place where a reason becomes a verdict.
            #[inline(always)]
            pub const fn verdict(self) -> Verdict {
                match self { $(Self::$name => Verdict::$verdict,)+ }
            }

            /// Returns the result of the flow look-up of a packet from a pod, or from the external
            /// interface.
            pub const fn lookup(self) -> Lookup {
                match self { $(Self::$name => Lookup::$lookup,)+ }
            }

            /// Returns true for an outcome that leaves open whose tunnel packet it is, so that the
            /// guard checks it.
            #[inline(always)]
            pub const fn is_for_guard(self) -> bool {
                matches!(match self { $(Self::$name => Sender::$sender,)+ }, Sender::Open)
            }

            /// Returns true if the program may take off the outer headers of such a packet,
            /// although it is not replayed.
            #[inline(always)]
            pub const fn is_decapsulated(self) -> bool {
                matches!(match self { $(Self::$name => Outer::$outer,)+ }, Outer::TakenOff)
            }

            /// Returns true for reasons that show that another node's view of the network differs
            /// from this node's.
            pub const fn is_suspicious(self) -> bool {
                matches!(match self { $(Self::$name => View::$view,)+ }, View::Differs)
            }
        }
    };
}

reasons! {
    0 Encapsulated "encapsulated" Redirect Absent Known Agrees Kept "Encapsulated from the peer \
        map and sent to the next hop.";
    1 ModeKernel "mode_kernel" Pass Absent Known Agrees Kept "The mode in force leaves this packet \
        to the kernel.";
    2 AgentGone "agent_gone" Pass Absent Known Agrees Kept "No agent heartbeat for 60 s; the maps \
        are considered stale.";
    3 NotConfigured "not_configured" Pass Absent Known Agrees Kept "The node's own data is not \
        valid, or changed while it was read.";
    4 OtherProtocol "other_protocol" Pass Absent Open Agrees Kept "Of no address family of the \
        network; of a tunnel packet, not the inner family of its tunnel.";
    5 Malformed "malformed" Pass Absent Open Agrees Kept "Too short for the headers it claims to \
        have.";
    6 VlanTagged "vlan_tagged" Pass Absent Known Agrees Kept "Has a VLAN tag: left to the kernel.";
    7 NoPeer "no_peer" Pass Miss Known Differs Kept "The far end lies in no peer's subnet.";
    8 PeerNotPlain "peer_not_plain" Pass Miss Known Agrees Kept "The path to the peer is not \
        plain, or the peer is reached directly; status shows the cause.";
    9 PeerChanging "peer_changing" Pass Miss Known Agrees Kept "The peer's entry was rewritten \
        while it was read.";
    10 UnexpectedMac "unexpected_mac" Pass Absent Known Differs Kept "The Ethernet addresses are \
        not ours and the peer's VTEP's.";
    11 PathUnseen "path_unseen" Pass Miss Known Agrees Kept "The path is not validated by a packet \
        of the kernel; this packet is the next probe.";
    12 TooBig "too_big" Pass Miss Known Agrees Kept "Larger than the MTU of the route, or than any \
        packet that validated the path.";
    13 NoHash "no_hash" Pass Absent Known Agrees Kept "The packet has no flow hash, so no outer \
        source port.";
    14 GsoOther "gso_other" Pass Absent Known Agrees Kept "Segmentation of another protocol than \
        TCP or UDP directly behind the IP header.";
    15 RoomRefused "room_refused" Pass Miss Known Agrees Kept "The kernel refused room for the \
        outer headers; the packet is unchanged.";
    16 StoreFailed "store_failed" Drop Miss Known Agrees Kept "The outer headers could not be \
        written after room was made.";
    17 NotTunnel "not_tunnel" Pass Absent Known Agrees Kept "Not a packet of our tunnel.";
    18 TunnelGood "tunnel_good" Pass Absent Known Agrees Kept "A tunnel packet from a peer, with \
        an inner source of that peer's subnet.";
    19 UnknownVtep "unknown_vtep" Pass Absent Known Differs Kept "A tunnel packet whose outer \
        source is no peer's VTEP.";
    20 OtherVni "other_vni" Pass Absent Known Differs Kept "A tunnel packet of another VNI.";
    21 BadVxlanHeader "bad_vxlan_header" Pass Absent Known Differs Kept "VXLAN flags other than \
        the VNI bit, or reserved bits set.";
    22 NotForUs "not_for_us" Pass Absent Open Differs Kept "A tunnel packet for another VTEP than \
        ours.";
    23 OuterFragment "outer_fragment" Pass Absent Open Agrees Kept "A fragment of an outer packet.";
    24 InnerOtherMac "inner_other_mac" Pass Absent Open Differs Kept "The inner Ethernet \
        destination is not our VTEP.";
    25 InnerOtherSource "inner_other_source" Pass Absent Open Differs Kept "The inner source lies \
        outside the sending peer's subnet.";
    26 SelfSent "self_sent" Pass Absent Known Agrees Kept "Sent by our own programs.";
    27 PathSeen "path_seen" Pass Absent Known Agrees Kept "The kernel's own tunnel packet equals \
        ours: the path is validated.";
    28 PathDiffers "path_differs" Pass Absent Known Agrees Kept "The kernel's own tunnel packet \
        differs from ours.";
    29 PathFragmented "path_fragmented" Pass Absent Known Agrees Kept "The kernel fragmented its \
        tunnel packet.";
    30 PathHeld "path_held" Pass Absent Known Agrees Kept "The kernel's own tunnel packet equals \
        ours, but an earlier one did not: the path is held down.";
    31 Replayed "replayed" Redirect Hit Known Agrees Kept "Of a known flow: redirected with the \
        kernel's treatment of the flow applied.";
    32 Sampled "sampled" Pass Miss Known Agrees Kept "Of an unknown flow; recorded, to learn what \
        the kernel does to it.";
    33 Refreshing "refreshing" Pass Miss Known Agrees Kept "Its flow is too old or of another \
        generation; recorded, to learn it again.";
    34 FlowUnknown "flow_unknown" Pass Miss Known Agrees TakenOff "Of an unknown flow, and not \
        recorded.";
    35 FlowClosed "flow_closed" Pass Miss Known Agrees TakenOff "Its connection was closed within \
        the last refresh interval.";
    36 ReverseMissing "reverse_missing" Pass Miss Known Agrees TakenOff "The reverse flow is \
        missing or too old.";
    37 TcpControl "tcp_control" Pass Absent Known Agrees TakenOff "SYN, FIN or RST: left to the \
        kernel, and the flow ends.";
    38 NotPlain "not_plain" Pass Absent Known Agrees Kept "With IP options or a wrong checksum of \
        the IPv4 header, TCP without SYN, ACK, FIN and RST, at the end of its TTL, or with lengths \
        that disagree.";
    39 FrameDiffers "frame_differs" Pass Miss Known Agrees Kept "Its Ethernet addresses are not \
        those of its flow.";
    40 NotLearned "not_learned" Pass Absent Known Agrees Kept "Flows of its protocol, its ports or \
        its pod are not learned; status shows the cause.";
    41 TooManyFlows "too_many_flows" Pass Miss Known Agrees Kept "Its sender creates flows faster \
        than they are learned.";
    42 CpuLimit "cpu_limit" Pass Miss Known Agrees Kept "The number of this CPU is too high to \
        record packets (512 and above).";
    43 NotFollowed "not_followed" Pass Absent Known Agrees Kept "Not recorded, so nothing is \
        learned from it.";
    44 Learned "learned" Pass Absent Known Agrees Kept "A recorded packet left: its flow is \
        learned.";
    45 RecordStale "record_stale" Pass Absent Known Agrees Kept "Refers to the record of another \
        packet: it was copied, queued or moved to another CPU.";
    46 ChangedOtherwise "changed_otherwise" Pass Absent Known Agrees Kept "A recorded packet left \
        with changes that cannot be replayed.";
    47 Untracked "untracked" Pass Absent Known Agrees Kept "A recorded packet left without a valid \
        conntrack entry.";
    48 OtherReceiver "other_receiver" Pass Absent Known Agrees Kept "A recorded packet left to a \
        pod whose address its frame does not have, or which is not in mode fast.";
    49 MirrorDiffers "mirror_differs" Pass Absent Known Agrees Kept "The reverse flow in the table \
        does not lead back to the sender of the packet.";
    50 TableRefused "table_refused" Pass Absent Known Agrees Kept "The flow table did not take the \
        flow.";
    51 OuterChecksum "outer_checksum" Pass Absent Known Agrees Kept "A tunnel packet with a UDP \
        checksum that is not verified yet.";
    52 Merged "merged" Pass Miss Known Agrees Kept "Merged datagrams of a tunnel, which must be \
        cut by the tunnel device.";
    53 Congested "congested" Pass Miss Known Agrees Kept "The outer header reports congestion \
        (ECN) and the inner one cannot.";
    54 ChecksumComplete "checksum_complete" Pass Miss Known Agrees Kept "An IPv6 packet to be \
        translated whose checksum the device computed as CHECKSUM_COMPLETE.";
    55 RewriteFailed "rewrite_failed" Drop Miss Known Agrees Kept "The packet could not be \
        rewritten after the first change.";
    56 RefusedVtep "refused_vtep" Drop Absent Known Agrees Kept "A tunnel packet whose outer \
        source is no peer's VTEP; the guard enforces that.";
    57 RefusedSource "refused_source" Drop Absent Known Agrees Kept "The inner source lies outside \
        the sending peer's subnet; the guard enforces that.";
    58 SenderUnnumbered "sender_unnumbered" Pass Absent Known Agrees Kept "From a node with a \
        subnet of another size than the network's, or whose lease ended: the inner source is not \
        checked.";
    59 OuterUnusual "outer_unusual" Pass Absent Open Agrees Kept "A tunnel packet that is \
        truncated, or behind IP options or extension headers.";
    60 RefusedEarly "refused_early" Drop Absent Known Agrees Kept "As refused_vtep, at the driver \
        by XDP.";
    61 NoEcmpPath "no_ecmp_path" Pass Miss Known Agrees Kept "The kernel's FIB gives no next hop \
        for this packet that the programs may use.";
    62 FieldsDiffer "fields_differ" Pass Miss Known Agrees Kept "Its DSCP, TTL or flow label is \
        not the one observed on its flow, and a rule may match on it.";
    63 AgentLate "agent_late" Pass Absent Known Agrees Kept "No agent heartbeat for 5 s: flows are \
        not replayed until the agent is back.";
    64 Unconfirmed "unconfirmed" Pass Miss Known Agrees TakenOff "Its flow was learned within the \
        last second; it is replayed once the agent has verified that no program queues packets.";
    65 ClassChanged "class_changed" Pass Absent Known Agrees Kept "The kernel's own tunnel packet \
        left with another mark or priority than it had at the tunnel device.";
    66 PodTunnel "pod_tunnel" Pass Absent Known Agrees Kept "From a pod to the tunnel port of a \
        peer or of its own node, which would accept it as a node's; the guard audits that.";
    67 RefusedPodTunnel "refused_pod_tunnel" Drop Absent Known Agrees Kept "As pod_tunnel; the \
        guard enforces that.";
    68 ConntrackExtension "conntrack_extension" Pass Absent Known Agrees Kept "A recorded packet \
        left whose connection has a conntrack helper or a timeout policy.";
    69 Handshake "handshake" Pass Miss Known Agrees TakenOff "The SYN-ACK of a connection, a \
        packet that answers it, or a datagram behind the first reply: recorded, to learn both \
        directions.";
    70 OtherRoute "other_route" Pass Miss Known Agrees Kept "To the outside, where the kernel's \
        FIB does not give it the device, neighbour and MTU of its flow.";
    71 ForgedClose "forged_close" Drop Absent Known Differs Kept "A FIN or RST of a known \
        connection that neither end can have sent: its sequence number lies outside of the window.";
    72 WindowChecked "window_checked" Pass Absent Known Agrees Kept "Conntrack still checks the \
        windows of its connection: announced to the agent, which ends that.";
    73 OuterDiffers "outer_differs" Pass Miss Known Agrees Kept "Its outer headers or its device \
        are not those with which a packet of its flow passed the kernel, and a rule or policy may \
        match on them.";
    74 OuterIpChecksum "outer_ip_checksum" Pass Absent Known Differs Kept "A tunnel packet with a \
        wrong checksum of its outer IP header: left to the kernel, which drops it.";
    75 ChecksumUnverified "checksum_unverified" Pass Miss Known Agrees Kept "Its TCP or UDP \
        checksum is wrong; or neither the device nor the kernel has verified it, and header and \
        payload are longer than the programs verify (2048 bytes).";
    76 Decapsulated "decapsulated" Redirect Miss Known Agrees Kept "A peer's tunnel packet that \
        cannot be replayed: its outer headers were taken off, and it goes on at the tunnel device.";
    77 TooFewPackets "too_few_packets" Pass Miss Known Agrees TakenOff "Its connection has just \
        begun: one of a single request is over before its packets could be replayed, so it is not \
        recorded yet.";
    78 OtherTransport "other_transport" Pass Absent Known Agrees Kept "Neither TCP nor UDP, such \
        as ICMP: a ping.";
    79 Fragment "fragment" Pass Absent Known Agrees Kept "A fragment of an IP packet.";
}

impl Reason {
    /// Returns the reason of a step, complete or not. One number, which a function of a program
    /// returns in a register; a result it would leave in its caller's memory.
    #[inline(always)]
    pub const fn of(outcome: Result<Self, Self>) -> Self {
        let (Ok(reason) | Err(reason)) = outcome;
        reason
    }

    /// The reason with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::stats::SLOTS_PER_PROGRAM;

    #[test]
    fn numbers_are_places_and_names_are_unique() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        for (place, reason) in (0..).zip(Reason::ALL) {
            assert_eq!(reason as u32, place);
            assert_eq!(Reason::from_number(place), Some(reason));
        }
        assert!(Reason::ALL.len() <= SLOTS_PER_PROGRAM as usize);
        assert_eq!(Reason::from_number(u32::MAX), None);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }

    #[test]
    fn a_packet_that_is_not_replayed_behind_a_look_up_is_a_miss() {
        for reason in [
            Reason::FieldsDiffer,
            Reason::Unconfirmed,
            Reason::Handshake,
            Reason::OtherRoute,
            Reason::TooBig,
        ] {
            assert_eq!(reason.lookup(), Lookup::Miss, "{}", reason.name());
        }
        for reason in Reason::ALL {
            assert_eq!(
                reason.lookup() == Lookup::Hit,
                reason == Reason::Replayed,
                "{}",
                reason.name()
            );
        }
    }

    #[test]
    fn only_half_made_and_refused_packets_are_dropped() {
        for reason in Reason::ALL {
            let expected = match reason {
                Reason::Encapsulated | Reason::Replayed | Reason::Decapsulated => Verdict::Redirect,
                Reason::StoreFailed
                | Reason::RewriteFailed
                | Reason::RefusedVtep
                | Reason::RefusedSource
                | Reason::RefusedEarly
                | Reason::RefusedPodTunnel
                | Reason::ForgedClose => Verdict::Drop,
                _ => Verdict::Pass,
            };
            assert_eq!(reason.verdict(), expected, "{}", reason.name());
        }
    }
}
