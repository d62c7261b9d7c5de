//! One event through every way of writing it.

use std::{net::Ipv4Addr, time::Duration};

use flannel_common::abi::{monitor::Event, program::Program, reason::Reason};

use super::{DeviceNames, Names, Seen, json, pcapng::Writer, text};

const EPOCH: Duration = Duration::from_secs(1_700_000_000);
/// No machine has that many devices.
const NOWHERE: u32 = 4_000_000;

/// An inner frame: an echo request.
fn frame() -> Vec<u8> {
    let ip = [
        0x45, 0, 0, 32, 0, 1, 0x40, 0, 63, 1, 0, 0, 10, 244, 1, 2, 10, 244, 2, 3,
    ];
    [
        &[2; 12],
        &[8, 0][..],
        &ip,
        &[8, 0, 0, 0, 0, 7, 0, 2],
        b"flan",
    ]
    .concat()
}

fn event(program: Program, reason: Reason, ifindex: u32, inner_at: u16, packet: &[u8]) -> Vec<u8> {
    let len = u32::try_from(packet.len()).expect("small");
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&3_123_456_789_u64.to_ne_bytes());
    for word in [ifindex, len, 0] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for half in [inner_at, u16::try_from(len).expect("small")] {
        bytes.extend_from_slice(&half.to_ne_bytes());
    }
    bytes.extend_from_slice(&[program as u8, reason as u8]);
    bytes.extend_from_slice(&[0; 6]);
    assert_eq!(bytes.len(), Event::LEN);
    [bytes, packet.to_vec()].concat()
}

/// The frame in outer headers.
fn encapsulated() -> Vec<u8> {
    let mut outer = vec![0; 50];
    outer[12] = 8;
    outer[14] = 0x45;
    outer[23] = 17;
    outer[26..30].copy_from_slice(&Ipv4Addr::new(192, 168, 1, 1).octets());
    outer[30..34].copy_from_slice(&Ipv4Addr::new(192, 168, 1, 2).octets());
    [outer, frame()].concat()
}

#[test]
fn a_line_for_people() {
    let item = event(
        Program::ToTunnel,
        Reason::Encapsulated,
        NOWHERE,
        50,
        &encapsulated(),
    );
    let seen = Seen::read(&item, 0).expect("an event");
    assert_eq!(
        text::line(&seen, EPOCH, &mut Names::default()),
        "22:13:23.123456 to_tunnel     encapsulated   #4000000  Out IP 10.244.1.2 > 10.244.2.3: \
         ICMP echo request, \
         id 7, seq 2, length 12, tunnel 192.168.1.1 > 192.168.1.2\n"
    );
    let item = event(
        Program::FromPod,
        Reason::RewriteFailed,
        NOWHERE,
        0,
        &frame(),
    );
    let line = text::line(
        &Seen::read(&item, 0).expect("an event"),
        EPOCH,
        &mut Names::default(),
    );
    assert!(
        line.contains("from_pod      rewrite_failed (dropped) #4000000  In  IP "),
        "{line}"
    );
}

#[test]
fn an_object_for_programs() {
    let item = event(
        Program::ToTunnel,
        Reason::Encapsulated,
        NOWHERE,
        50,
        &encapsulated(),
    );
    let line = json::line(
        &Seen::read(&item, 16).expect("an event"),
        EPOCH,
        &mut Names::default(),
    );
    assert!(
        line.ends_with("}\n") && !line.trim_end().contains('\n'),
        "{line}"
    );
    let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(object["time"], "2023-11-14T22:13:23.123456789Z");
    assert_eq!(
        (&object["program"], &object["verdict"]),
        (&"to_tunnel".into(), &"redirect".into())
    );
    assert_eq!(
        (&object["source"], &object["outer_destination"]),
        (&"10.244.1.2".into(), &"192.168.1.2".into())
    );
    assert_eq!(
        (&object["length"], &object["source_port"]),
        (&46.into(), &serde_json::Value::Null)
    );
    assert_eq!(object["bytes"], "02020202020202020202020208004500");
}

#[test]
fn pods_of_this_node_and_services_have_their_names() {
    let item = event(Program::FromPod, Reason::Replayed, NOWHERE, 0, &frame());
    let seen = Seen::read(&item, 0).expect("an event");
    let source = [10, 244, 1, 2].into();
    let mut names = Names {
        pods: [(source, "default/web".to_owned())].into(),
        ..Names::default()
    };
    let line = text::line(&seen, EPOCH, &mut names);
    assert!(
        line.ends_with(", length 12, from pod default/web\n"),
        "{line}"
    );
    let object: serde_json::Value =
        serde_json::from_str(&json::line(&seen, EPOCH, &mut names)).expect("JSON");
    assert_eq!(
        (&object["source_pod"], &object["destination_pod"]),
        (&"default/web".into(), &serde_json::Value::Null)
    );
    names
        .services
        .insert([10, 244, 2, 3].into(), "default/dns".to_owned());
    let line = text::line(&seen, EPOCH, &mut names);
    assert!(
        line.ends_with(", from pod default/web, to service default/dns\n"),
        "{line}"
    );
    let object: serde_json::Value =
        serde_json::from_str(&json::line(&seen, EPOCH, &mut names)).expect("JSON");
    assert_eq!(
        (&object["source_service"], &object["destination_service"]),
        (&serde_json::Value::Null, &"default/dns".into())
    );
    names
        .pods
        .insert([10, 244, 2, 3].into(), "default/db".to_owned());
    let line = text::line(&seen, EPOCH, &mut names);
    assert!(
        line.ends_with(", from pod default/web, to pod default/db\n"),
        "{line}"
    );
}

#[test]
fn what_is_not_an_event_is_none() {
    let item = event(
        Program::ToTunnel,
        Reason::Encapsulated,
        NOWHERE,
        50,
        &encapsulated(),
    );
    for cut in 0..item.len() {
        assert!(Seen::read(&item[..cut], 100).is_none(), "cut at {cut}");
    }
    let mut of_the_future = item;
    of_the_future[25] = 200;
    assert!(Seen::read(&of_the_future, 100).is_none());
}

/// A block: its kind and its body.
type Block<'a> = (u32, &'a [u8]);

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The blocks of a file, each framed by its length.
fn blocks(mut file: &[u8]) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let len = word(file, 4) as usize;
        assert!(
            len.is_multiple_of(4) && word(file, len - 4) as usize == len,
            "a block of {len}"
        );
        blocks.push((word(file, 0), &file[8..len - 4]));
        file = &file[len..];
    }
    blocks
}

/// The options at the end of a block's body, up to the end of options.
fn options(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    loop {
        let [code, len] = [0, 2].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        if code == 0 {
            assert_eq!((len, bytes.len()), (0, 4), "the end comes last");
            return options;
        }
        options.push((code, bytes[4..4 + usize::from(len)].to_vec()));
        bytes = &bytes[4 + usize::from(len).next_multiple_of(4)..];
    }
}

#[test]
fn a_capture_has_an_interface_for_each_device_and_the_inner_frames() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, 33).expect("memory");
    let devices = &mut DeviceNames::default();
    for (ifindex, program) in [
        (NOWHERE, Program::ToTunnel),
        (NOWHERE + 1, Program::ToTunnel),
        (NOWHERE, Program::FromUnderlay),
    ] {
        let item = event(program, Reason::Encapsulated, ifindex, 50, &encapsulated());
        writer
            .packet(&Seen::read(&item, 33).expect("an event"), EPOCH, devices)
            .expect("memory");
    }
    let blocks = blocks(&file);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 1, 6, 6]);
    assert_eq!(word(blocks[0].1, 0), 0x1a2b_3c4d);
    assert_eq!(
        options(&blocks[1].1[8..]),
        [(2, b"#4000000".to_vec()), (9, vec![9])]
    );
    for (number, (block, interface, flags)) in [(2, 0, 2_u32), (4, 1, 2), (5, 0, 1)]
        .into_iter()
        .enumerate()
    {
        let (_, body) = blocks[block];
        assert_eq!(word(body, 0), interface, "packet {number}");
        let time = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
        assert_eq!(time, 1_700_000_003_123_456_789);
        assert_eq!(
            [word(body, 12), word(body, 16)],
            [33, 46],
            "kept, and whole"
        );
        assert_eq!(body[20..53], frame()[..33]);
        let options = options(&body[56..]);
        assert_eq!(options[0], (2, flags.to_le_bytes().to_vec()));
        let comment = String::from_utf8_lossy(&options[1].1);
        assert!(
            comment.ends_with(" encapsulated, redirect, tunnel 192.168.1.1 > 192.168.1.2"),
            "{comment}"
        );
    }
}
