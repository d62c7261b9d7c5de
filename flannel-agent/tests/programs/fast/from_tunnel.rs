//! `from_tunnel`: notes packets, and takes none.

use flannel_common::{flow::Exit, mode::Mode, program::Program::FromTunnel, reason::Reason};

use super::{
    UNKNOWN, is_ended, on_fast_bench,
    packet::{Packet, tcp},
    passes, read, teach,
};

#[test]
fn packets_of_known_flows_are_not_followed() {
    on_fast_bench(|bench| {
        passes(bench, FromTunnel, &tcp().bytes(), &UNKNOWN);
        teach(bench, &tcp(), &tcp(), Exit::POD);
        passes(bench, FromTunnel, &tcp().bytes(), &[Reason::NotFollowed]);
        bench.maps.mode.bump().expect("MODE");
        passes(bench, FromTunnel, &tcp().bytes(), &[Reason::Refreshing]);
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        passes(bench, FromTunnel, &tcp().bytes(), &[Reason::ModeKernel]);
    });
}

#[test]
fn closing_ends_both_directions() {
    on_fast_bench(|bench| {
        let there = teach(bench, &tcp(), &tcp(), Exit::POD);
        passes(bench, FromTunnel, &Packet { flags: 0x11, ..tcp() }.bytes(), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &there), &there));
        passes(bench, FromTunnel, &tcp().bytes(), &[Reason::FlowClosed]);
    });
}
