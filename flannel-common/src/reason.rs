//! Why a packet got the verdict it got. The numbers index the statistics and name metric labels: they are
//! append-only, and a retired one keeps its place.

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On to the next program or the kernel, untouched (`TC_ACT_UNSPEC`, which is `TCX_NEXT`).
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

macro_rules! reasons {
    ($($number:literal $name:ident $text:literal $verdict:ident $doc:literal;)+) => {
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

            /// What the reason means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)+ }
            }

            /// The one place where a reason becomes a verdict.
            #[inline(always)]
            pub const fn verdict(self) -> Verdict {
                match self { $(Self::$name => Verdict::$verdict,)+ }
            }
        }
    };
}

reasons! {
    0 Encapsulated "encapsulated" Redirect "Encapsulated from the peer map and sent to the next hop.";
    1 ModeKernel "mode_kernel" Pass "The mode in force leaves this packet to the kernel.";
    2 AgentGone "agent_gone" Pass "No agent heartbeat for 60 s; the maps are considered stale.";
    3 NotConfigured "not_configured" Pass "The node's own data is not valid, or changed while it was read.";
    4 OtherProtocol "other_protocol" Pass "Neither IPv4 nor IPv6; of a tunnel packet, not the inner family of its tunnel.";
    5 Malformed "malformed" Pass "Too short for the headers it claims to have.";
    6 VlanTagged "vlan_tagged" Pass "Carries a VLAN tag; such packets are the kernel's.";
    7 NoPeer "no_peer" Pass "The destination lies in no peer's subnet.";
    8 PeerNotPlain "peer_not_plain" Pass "The path to the peer is not plain, or the peer is reached directly; status says why.";
    9 PeerChanging "peer_changing" Pass "The peer's entry was rewritten while it was read.";
    10 ForeignFrame "foreign_frame" Pass "The Ethernet addresses are not ours and the peer's VTEP's.";
    11 PathUnseen "path_unseen" Pass "No packet of the kernel's own was seen to leave plainly of late; this one shows the way.";
    12 TooBig "too_big" Pass "Larger than the route takes, or than anything seen to leave whole.";
    13 NoHash "no_hash" Pass "No flow hash is known for the packet, so no source port either.";
    14 GsoOther "gso_other" Pass "Segmentation of something else than TCP or UDP right behind the IP header.";
    15 RoomRefused "room_refused" Pass "The kernel refused room for the outer headers; the packet is as it was.";
    16 StoreFailed "store_failed" Drop "The outer headers could not be written after room was made.";
    17 NotTunnel "not_tunnel" Pass "Not a packet of our tunnel.";
    18 TunnelGood "tunnel_good" Pass "A tunnel packet from a peer, with an inner source of that peer's subnet.";
    19 UnknownVtep "unknown_vtep" Pass "A tunnel packet whose outer source is no peer's VTEP.";
    20 OtherVni "other_vni" Pass "A tunnel packet of another VNI.";
    21 BadVxlanHeader "bad_vxlan_header" Pass "VXLAN flags other than the VNI bit, or reserved bits set.";
    22 NotForUs "not_for_us" Pass "A tunnel packet for another VTEP than ours.";
    23 OuterFragment "outer_fragment" Pass "A fragment of an outer packet.";
    24 InnerOtherMac "inner_other_mac" Pass "The inner Ethernet destination is not our VTEP.";
    25 InnerOtherSource "inner_other_source" Pass "The inner source lies outside the sending peer's subnet.";
    26 OwnPacket "own_packet" Pass "Encapsulated, or sent on, by us a moment ago.";
    27 PathSeen "path_seen" Pass "The kernel's own tunnel packet equals what we would make: the path is plain.";
    28 PathDiffers "path_differs" Pass "The kernel's own tunnel packet differs from what we would make.";
    29 PathFragmented "path_fragmented" Pass "The kernel fragmented its tunnel packet.";
    30 PathHeld "path_held" Pass "The kernel's own tunnel packet is as ours, but another one a moment ago was not.";
    31 Replayed "replayed" Redirect "Of a known flow: treated as the kernel was seen to treat it, and sent on.";
    32 Noted "noted" Pass "Of an unknown flow; noted, to see what the kernel does to it.";
    33 Refreshing "refreshing" Pass "What was seen of its flow is too old, or of another generation; noted, to see it anew.";
    34 FlowUnknown "flow_unknown" Pass "Of an unknown flow, and not noted.";
    35 FlowClosed "flow_closed" Pass "Its connection was closed a moment ago.";
    36 OneSided "one_sided" Pass "What was seen of its flow's way back is missing or too old.";
    37 TcpControl "tcp_control" Pass "SYN, FIN or RST: the kernel's, and the end of what was known of the flow.";
    38 NotPlain "not_plain" Pass "A fragment, with IP options, neither TCP nor UDP, at the end of its TTL, or with lengths that disagree.";
    39 FrameDiffers "frame_differs" Pass "Its Ethernet addresses are not those seen on its flow.";
    40 NotLearned "not_learned" Pass "Flows of its protocol, its ports or its pod are not learned; status says why.";
    41 TooManyFlows "too_many_flows" Pass "Its sender makes new flows faster than they are learned.";
    42 NoSlot "no_slot" Pass "This CPU's number is too high for notes.";
    43 NotFollowed "not_followed" Pass "Not noted, so nothing is learned from it.";
    44 Learned "learned" Pass "A noted packet came out: its flow is known now.";
    45 NoteStale "note_stale" Pass "Names a note on another packet: it was copied, queued or handed to another CPU.";
    46 ChangedOtherwise "changed_otherwise" Pass "A noted packet came out changed in a way that is not repeated.";
    47 Untracked "untracked" Pass "A noted packet came out without a valid conntrack entry.";
    48 OtherReceiver "other_receiver" Pass "A noted packet came out at a pod whose address its frame does not carry, or that takes no fast packets.";
    49 MirrorDiffers "mirror_differs" Pass "The known way back of the flow does not lead back to where the packet came from.";
    50 TableRefused "table_refused" Pass "The flow table did not take the flow.";
    51 OuterChecksum "outer_checksum" Pass "A tunnel packet with a UDP checksum that nobody has verified yet.";
    52 Merged "merged" Pass "Merged datagrams of a tunnel, which must be cut by the tunnel device.";
    53 Congested "congested" Pass "The outer header reports congestion and the inner one cannot.";
    54 WholeSum "whole_sum" Pass "An IPv6 packet to be translated whose device summed all of it.";
    55 RewriteFailed "rewrite_failed" Drop "The packet could not be rewritten after the first change.";
    56 RefusedVtep "refused_vtep" Drop "A tunnel packet whose outer source is no peer's VTEP; the guard enforces that.";
    57 RefusedSource "refused_source" Drop "The inner source lies outside the sending peer's subnet; the guard enforces that.";
    58 SenderUnnumbered "sender_unnumbered" Pass "From a node with a subnet of another size than the network's, or whose lease has just gone: the inner source is not checked.";
    59 OuterUnusual "outer_unusual" Pass "A tunnel packet that is cut short or stands behind IP options or extension headers.";
    60 RefusedEarly "refused_early" Drop "As refused_vtep, at the driver by XDP.";
    61 NoLeg "no_leg" Pass "The kernel's FIB gives no next hop for this packet that the programs may use.";
    62 FieldsDiffer "fields_differ" Pass "Its DSCP, TTL or flow label is not the one observed on its flow, and a rule may match on it.";
    63 AgentLate "agent_late" Pass "No agent heartbeat for 5 s: flows are not replayed until the agent is back.";
    64 Unconfirmed "unconfirmed" Pass "Its flow was learned a moment ago; it is replayed once the agent has made sure that no program queues packets.";
    65 ClassChanged "class_changed" Pass "The kernel's own tunnel packet left with another mark or priority than it had at the tunnel device.";
    66 PodTunnel "pod_tunnel" Pass "A packet from a pod to the tunnel port of a peer, where it would pass for one of this node's, or of its own node; the guard audits that.";
    67 RefusedPodTunnel "refused_pod_tunnel" Drop "As pod_tunnel, and the guard enforces that a pod does not speak VXLAN for its node.";
    68 ConntrackExtension "conntrack_extension" Pass "A noted packet came out whose connection has a conntrack helper or a timeout policy of its own.";
}

impl Reason {
    /// What a step found, whether or not it came to its end. One number, which a function of a program returns in a register; a
    /// result it would leave in its caller's memory.
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
    use crate::stats::SLOTS_PER_PROGRAM;

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
    fn only_half_made_and_refused_packets_are_dropped() {
        for reason in Reason::ALL {
            let expected = match reason {
                Reason::Encapsulated | Reason::Replayed => Verdict::Redirect,
                Reason::StoreFailed
                | Reason::RewriteFailed
                | Reason::RefusedVtep
                | Reason::RefusedSource
                | Reason::RefusedEarly
                | Reason::RefusedPodTunnel => Verdict::Drop,
                _ => Verdict::Pass,
            };
            assert_eq!(reason.verdict(), expected, "{}", reason.name());
        }
    }
}
