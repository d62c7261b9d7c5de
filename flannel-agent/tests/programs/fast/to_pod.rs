//! `to_pod`: takes nothing, and ends the way back of what closes.

use flannel_common::{
    abi::{program::Program::ToPod, reason::Reason},
    flow::Egress,
};

use super::{
    both, is_ended,
    packet::{Packet, tcp},
    passes, read, teach,
};

both! {
    fn packets_without_a_note_teach_nothing<A>(bench) {
        passes(bench, ToPod, &tcp(A::NET).bytes(), &[Reason::NotFollowed]);
        assert_eq!(A::flows(&mut bench.maps).entries().count(), 0);
    }

    fn a_closing_packet_ends_the_way_back<A>(bench) {
        let packet = tcp(A::NET);
        let back = teach::<A>(bench, &packet.reversed(), &packet.reversed(), Egress::TUNNEL);
        passes(bench, ToPod, &Packet { flags: 0x11, ..packet }.bytes(), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &back), &back));
    }
}
