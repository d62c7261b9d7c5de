//! Tunnels over IPv4.

use std::{collections::BTreeSet, net::UdpSocket, time::Duration};

use anyhow::Result;
use flannel_tests::{
    eventually,
    packet::{
        frame::{self, V4, is_encapsulated_by_us},
        wire::inject,
    },
};

use super::{IPV4, Wire};

#[test]
fn frames_of_every_kind_of_inner_packet_equal_the_kernels() -> Result<()> {
    Wire::new("frames", &IPV4)?.expect_equal_kinds()
}

#[test]
fn the_outer_tos_equals_the_kernels_for_every_inner_one() -> Result<()> {
    for (class, outer, ours) in Wire::new("tos", &IPV4)?.expect_equal_classes()? {
        assert_eq!(
            (ours[15], ours[V4.inner + 1]),
            (outer, class),
            "inner {class:#x}"
        );
    }
    Ok(())
}

#[test]
fn the_largest_packet_for_the_mtu_is_encapsulated_like_the_kernels() -> Result<()> {
    let wire = Wire::new("largest", &IPV4)?;
    let all = wire.expect_equal(&[("1450 bytes", wire.largest())])?;
    assert_eq!(all[0].ours.len() - 14, 1500);
    Ok(())
}

/// ECMP in the underlay goes by the outer source port: a flow must not move when the mode changes.
#[test]
fn a_sockets_flow_keeps_its_outer_source_port_across_modes() -> Result<()> {
    let wire = Wire::new("port", &IPV4)?;
    let far = wire.pair.far.ip();
    let sockets: Vec<UdpSocket> = wire.pair.near.enter(|| -> Result<_> {
        (0..8)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect((far, 4243))?;
                Ok(socket)
            })
            .collect()
    })??;
    let ports = |by_us: bool| -> Result<Vec<u16>> {
        wire.capture.clear();
        sockets
            .iter()
            .map(|socket| outer_port(&wire, socket, by_us))
            .collect()
    };
    wire.pair.sender.set_mode("kernel")?;
    let kernel = ports(false)?;
    wire.pair.sender.set_mode("encap")?;
    let ours = ports(true)?;
    assert_eq!(kernel, ours);
    let different: BTreeSet<_> = ours.iter().collect();
    assert!(different.len() > 1, "one port for all flows: {ours:?}");
    Ok(())
}

/// The outer source port of the frames by which a socket's datagrams leave.
fn outer_port(wire: &Wire, socket: &UdpSocket, by_us: bool) -> Result<u16> {
    let local = socket.local_addr()?.port();
    eventually("a frame of this socket", Duration::from_secs(5), || {
        // Nothing listens there; the refusal comes back as an error of a later send.
        drop(socket.send(b"a datagram"));
        let frames = wire.capture.frames();
        let is_wanted = |frame: &&Vec<u8>| {
            let inner = frame::udp(&frame[V4.inner - 14..]);
            inner.is_some_and(|udp| udp.source_port() == local)
                && is_encapsulated_by_us(frame) == by_us
        };
        Some(frame::udp(frames.iter().find(is_wanted)?)?.source_port())
    })
}

/// Equal ones would mix packets up wherever the underlay fragments.
#[test]
fn identifications_of_our_frames_differ() -> Result<()> {
    let wire = Wire::new("ids", &IPV4)?;
    wire.pair.sender.set_mode("encap")?;
    let packet = wire.datagram(1, 64);
    wire.frame(&packet, true)?;
    wire.capture.clear();
    for _ in 0..40 {
        inject(&wire.pair.near, &packet)?;
    }
    let ids = eventually("forty frames", Duration::from_secs(5), || {
        let frames = wire.carrying(&packet);
        let ids: Vec<_> = frames
            .iter()
            .filter(|frame| is_encapsulated_by_us(frame))
            .filter_map(|frame| Some(frame::ipv4(frame)?.identification()))
            .collect();
        (frames.len() == 40).then_some(ids)
    })?;
    let different: BTreeSet<_> = ids.iter().collect();
    assert!(
        ids.len() >= 38 && different.len() + 2 >= ids.len(),
        "{ids:?}"
    );
    Ok(())
}
