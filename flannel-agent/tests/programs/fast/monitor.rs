//! Monitor events of replayed packets: they hold the packet as it was sent.

use flannel_common::{
    abi::{
        monitor::SNAPLEN_MAX,
        program::Program::{FromPod, FromUnderlay},
        reason::Reason,
    },
    flow::Egress,
};

use super::{
    both,
    packet::{Packet, tcp},
    teach,
};
use crate::{
    monitor::{ALL, reported, start, whole},
    packets::{OUR_MAC, PEER_MAC},
};

both! {
    fn into_the_tunnel_as_it_leaves<A>(bench) {
        let packet = tcp(A::NET);
        let sent = packet.to_service();
        teach::<A>(bench, &sent, &packet, Egress::TUNNEL);
        let mut monitor = start(bench, &ALL);
        let left = bench.run(FromPod, &sent.bytes()).packet;
        let outer = Some([A::NET.our_vtep, A::NET.peer_vtep]);
        let expected = whole(FromPod, Reason::Replayed, &left[A::NET.at().inner..], outer);
        assert_eq!(reported(&mut monitor, SNAPLEN_MAX), [expected]);
    }

    fn into_the_pod_as_it_gets_there<A>(bench) {
        let packet = Packet {
            to: OUR_MAC,
            from: PEER_MAC,
            ..tcp(A::NET).reversed()
        };
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let mut tunnelled = A::NET.tunnel_frame_from_peer(packet.tos & 0b11, &packet.bytes());
        tunnelled[..6].fill(0);
        tunnelled[A::NET.at().udp + 6..A::NET.at().udp + 8].fill(0);
        let mut monitor = start(bench, &ALL);
        let left = bench.run(FromUnderlay, &tunnelled).packet;
        assert_eq!(
            reported(&mut monitor, SNAPLEN_MAX),
            [whole(FromUnderlay, Reason::Replayed, &left, None)]
        );
    }
}
