//! `to_pod`: takes nothing, and ends the way back of what closes.

use flannel_common::{flow::Exit, program::Program::ToPod, reason::Reason};

use super::{
    is_ended, on_fast_bench,
    packet::{Packet, tcp},
    passes, read, teach,
};

#[test]
fn packets_without_a_note_teach_nothing() {
    on_fast_bench(|bench| {
        passes(bench, ToPod, &tcp().bytes(), &[Reason::NotFollowed]);
        assert_eq!(bench.maps.flows.entries().count(), 0);
    });
}

#[test]
fn a_closing_packet_ends_the_way_back() {
    on_fast_bench(|bench| {
        let back = teach(bench, &tcp().reversed(), &tcp().reversed(), Exit::TUNNEL);
        passes(bench, ToPod, &Packet { flags: 0x11, ..tcp() }.bytes(), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &back), &back));
    });
}
