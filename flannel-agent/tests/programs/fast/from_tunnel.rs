//! `from_tunnel`: notes packets, and takes none.

use flannel_common::{
    abi::{mode::Mode, program::Program::FromTunnel, reason::Reason},
    flow::Egress,
};

use super::{
    UNKNOWN, both, is_ended,
    packet::{Packet, tcp},
    passes, read, teach,
};

both! {
    fn packets_of_known_flows_are_not_followed<A>(bench) {
        let packet = tcp(A::NET);
        passes(bench, FromTunnel, &packet.bytes(), &UNKNOWN);
        teach::<A>(bench, &packet, &packet, Egress::POD);
        passes(bench, FromTunnel, &packet.bytes(), &[Reason::NotFollowed]);
        bench.maps.mode.bump().expect("MODE");
        passes(bench, FromTunnel, &packet.bytes(), &[Reason::Refreshing]);
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        passes(bench, FromTunnel, &packet.bytes(), &[Reason::ModeKernel]);
    }

    fn closing_ends_the_flow<A>(bench) {
        let packet = tcp(A::NET);
        let there = teach::<A>(bench, &packet, &packet, Egress::POD);
        passes(bench, FromTunnel, &Packet { flags: 0x11, ..packet }.bytes(), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &there), &there));
        passes(bench, FromTunnel, &packet.bytes(), &[Reason::FlowClosed]);
    }
}
