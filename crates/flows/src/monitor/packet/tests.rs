//! Frames in the words of tcpdump.

use proptest::prelude::*;

use super::*;

fn frame(ethertype: [u8; 2], rest: &[&[u8]]) -> Vec<u8> {
    [&[2; 12], &ethertype[..], &rest.concat()].concat()
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(IPV4_LEN + payload.len())
        .expect("small")
        .to_be_bytes();
    let header = [
        0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 63, protocol, 0, 0, 10, 244, 1, 2, 10, 244, 2,
        3,
    ];
    frame(ETHERTYPE_IPV4, &[&header, payload])
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("small");
    let [source, destination] =
        ["fd00::1", "fd00::2"].map(|text| text.parse::<Ipv6Addr>().expect("an address"));
    let header = [
        &[0x60, 0, 0, 0, 0, len, protocol, 64][..],
        &source.octets(),
        &destination.octets(),
    ]
    .concat();
    frame(ETHERTYPE_IPV6, &[&header, payload])
}

fn line(frame: &[u8]) -> String {
    Packet::read(frame, u32::try_from(frame.len()).expect("small")).to_string()
}

#[test]
fn packets_read_as_in_tcpdump() {
    let tcp = [
        0xa3, 0x66, 0, 80, 0, 0, 0, 1, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0, b'h', b'i',
    ];
    assert_eq!(
        line(&v4(6, &tcp)),
        "IP 10.244.1.2.41830 > 10.244.2.3.80: Flags [P.], seq 1:3, ack 9, win 256, length 2"
    );
    let syn = [
        0xa3, 0x66, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 1, 0, 0, 0, 0, 0,
    ];
    assert_eq!(
        line(&v6(6, &syn)),
        "IP6 fd00::1.41830 > fd00::2.80: Flags [S], seq 1, win 256, length 0"
    );
    assert_eq!(
        line(&v4(17, &[0, 53, 0, 99, 0, 12, 0, 0, 1, 2, 3, 4])),
        "IP 10.244.1.2.53 > 10.244.2.3.99: UDP, length 4"
    );
    let echo = [8, 0, 0, 0, 0, 7, 0, 2];
    assert_eq!(
        line(&v4(1, &echo)),
        "IP 10.244.1.2 > 10.244.2.3: ICMP echo request, id 7, seq 2, length 8"
    );
    assert_eq!(
        line(&v6(58, &[129, 0, 0, 0, 0, 7, 0, 2])),
        "IP6 fd00::1 > fd00::2: ICMP6 echo reply, id 7, seq 2, length 8"
    );
    assert_eq!(
        line(&v4(1, &[3, 4, 0, 0, 0, 0, 5, 0])),
        "IP 10.244.1.2 > 10.244.2.3: ICMP type 3 code 4, length 8"
    );
    assert_eq!(
        line(&v4(132, &[0; 12])),
        "IP 10.244.1.2 > 10.244.2.3: ip-proto-132, length 12"
    );
    assert_eq!(line(&frame(ETHERTYPE_ARP, &[&[0; 28]])), "ARP, length 42");
    assert_eq!(
        line(&frame([0x88, 0xcc], &[])),
        "ethertype 0x88cc, length 14"
    );
}

#[test]
fn a_later_fragment_has_no_ports() {
    let mut fragment = v4(17, &[1; 16]);
    fragment[ETH_LEN + 7] = 185;
    assert_eq!(
        line(&fragment),
        "IP 10.244.1.2 > 10.244.2.3: udp, length 16"
    );
}

proptest! {
    /// Whatever lies in a packet, and wherever it was cut.
    #[test]
    fn any_bytes_are_read(
        bytes in prop::collection::vec(any::<u8>(), 0..90),
        ethertype in 0_usize..3,
        len: u32,
    ) {
        let mut bytes = bytes;
        let ethertype = [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ARP][ethertype];
        if let Some(at) = bytes.get_mut(12..ETH_LEN) {
            at.copy_from_slice(&ethertype);
        }
        prop_assert!(!Packet::read(&bytes, len).to_string().is_empty());
    }
}
