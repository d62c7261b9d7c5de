//! Tunnels over IPv4.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

use anyhow::Result;
use flannel_tests::{
    eventually,
    packet::{
        self, ICMP, INNER_AT, Ipv4, MORE_FRAGMENTS, TCP, UDP, echo_request, identification, is_encapsulated_by_us,
        pattern, tcp_syn, total_length, udp,
    },
    wire::inject,
};

use super::{IPV4, Wire};

fn ends(wire: &Wire) -> Result<[Ipv4Addr; 2]> {
    Ok([wire.pair.near.ip4()?, wire.pair.far.ip4()?])
}

#[test]
fn frames_of_every_kind_of_inner_packet_equal_the_kernels() -> Result<()> {
    let wire = Wire::new("frames", &IPV4)?;
    let [from, to] = ends(&wire)?;
    let datagram = |id| Ipv4::udp(from, to, id, 100);
    let zero_checksum = Ipv4::new(from, to, 4, UDP, udp(4242, 4243, &pattern(100)));
    let with_options = Ipv4 { options: vec![1, 1, 1, 0], ..datagram(5) };
    let first = Ipv4 { fragment: MORE_FRAGMENTS, ..Ipv4::new(from, to, 6, UDP, datagram(6).payload[..64].to_vec()) };
    let later = Ipv4 { fragment: 8, ..Ipv4::new(from, to, 6, UDP, pattern(44)) };
    let echo = Ipv4::new(from, to, 1, ICMP, echo_request(9, 56));
    let syn = Ipv4::new(from, to, 2, TCP, tcp_syn(40_000, 80, 7)).with_checksum(16);
    let whole = Ipv4 { fragment: packet::DONT_FRAGMENT, ..datagram(8) };
    let other = Ipv4::new(from, to, 10, 99, pattern(24));
    wire.expect_equal(&[
        ("ICMP echo request", echo.bytes()),
        ("TCP SYN", syn.bytes()),
        ("UDP", datagram(3).bytes()),
        ("UDP with checksum 0", zero_checksum.bytes()),
        ("UDP with IPv4 options", with_options.bytes()),
        ("first fragment", first.bytes()),
        ("later fragment", later.bytes()),
        ("DF inside", whole.bytes()),
        ("a protocol without ports", other.bytes()),
        ("no payload", Ipv4::new(from, to, 11, UDP, udp(4242, 4243, &[])).with_checksum(6).bytes()),
    ])?;
    Ok(())
}

/// DSCP is not copied out, ECN is, and CE becomes ECT(0) outside (RFC 6040).
#[test]
fn the_outer_tos_equals_the_kernels_for_every_inner_one() -> Result<()> {
    let wire = Wire::new("tos", &IPV4)?;
    let [from, to] = ends(&wire)?;
    let cases: [(&str, u8, u8); 7] = [
        ("Not-ECT", 0, 0),
        ("ECT(1)", 1, 1),
        ("ECT(0)", 2, 2),
        ("CE", 3, 2),
        ("EF", 0xb8, 0),
        ("EF and ECT(0)", 0xba, 2),
        ("EF and CE", 0xbb, 2),
    ];
    let number = |at: usize| u16::try_from(at + 1).expect("few cases");
    let packets: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(at, (name, tos, _))| (*name, Ipv4 { tos: *tos, ..Ipv4::udp(from, to, number(at), 64) }.bytes()))
        .collect();
    let all = wire.expect_equal(&packets)?;
    for ((name, tos, outer), both) in cases.iter().zip(all) {
        assert_eq!((both.ours[15], both.ours[INNER_AT + 1]), (*outer, *tos), "{name}");
    }
    Ok(())
}

#[test]
fn the_largest_packet_for_the_mtu_is_encapsulated_like_the_kernels() -> Result<()> {
    let wire = Wire::new("largest", &IPV4)?;
    let [from, to] = ends(&wire)?;
    let packet = Ipv4::udp(from, to, 1, 1450 - 28);
    let all = wire.expect_equal(&[("1450 bytes", packet.bytes())])?;
    assert_eq!(total_length(&all[0].ours[14..]), 1500);
    Ok(())
}

/// ECMP in the underlay goes by the outer source port: a flow must not move when the mode changes.
#[test]
fn a_sockets_flow_keeps_its_outer_source_port_across_modes() -> Result<()> {
    let wire = Wire::new("port", &IPV4)?;
    let far = ends(&wire)?[1];
    let sockets: Vec<UdpSocket> = wire.pair.near.enter(|| -> Result<_> {
        (0..8)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect((far, 4243))?;
                Ok(socket)
            })
            .collect()
    })??;
    let ports = |by_us: bool| -> Result<Vec<[u8; 2]>> {
        wire.capture.clear();
        sockets.iter().map(|socket| outer_port(&wire, socket, by_us)).collect()
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
fn outer_port(wire: &Wire, socket: &UdpSocket, by_us: bool) -> Result<[u8; 2]> {
    let local = socket.local_addr()?.port().to_be_bytes();
    eventually("a frame of this socket", Duration::from_secs(5), || {
        // Nothing listens there; the refusal comes back as an error of a later send.
        drop(socket.send(b"a datagram"));
        let frames = wire.capture.frames();
        let ours = frames.iter().find(|frame| {
            frame[INNER_AT + 9] == UDP
                && frame[INNER_AT + 20..INNER_AT + 22] == local
                && is_encapsulated_by_us(frame) == by_us
        });
        ours.map(|frame| [frame[34], frame[35]])
    })
}

/// Equal ones would mix packets up wherever the underlay fragments.
#[test]
fn identifications_of_our_frames_differ() -> Result<()> {
    let wire = Wire::new("ids", &IPV4)?;
    let [from, to] = ends(&wire)?;
    wire.pair.sender.set_mode("encap")?;
    let packet = Ipv4::udp(from, to, 1, 64).bytes();
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
            .map(|frame| identification(&frame[14..]))
            .collect();
        (frames.len() == 40).then_some(ids)
    })?;
    let different: BTreeSet<_> = ids.iter().collect();
    assert!(ids.len() >= 38 && different.len() + 2 >= ids.len(), "{ids:?}");
    Ok(())
}
