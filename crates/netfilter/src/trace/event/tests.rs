//! Messages of Linux 6.18, for a ping from 10.1.0.2 to 10.2.0.2 and for a SYN that a rule drops.

use super::*;

const BEGIN: &str = "\
    c4000000110a000000000000000000000100000008000f0000000002080004000000000308000600f691144f \
    180002006f726967696e616c2d707265726f7574696e670012000100666c616e6e656c2d7472616365000000 \
    0c00030000000000000000050c00050008000100ffffffff08000a000000000206000b000001000018000800 \
    45000054efeb4000400136b70a0100020a0200021800090008001fa74d33000190600c6b0000000026860900 \
    12000700b64527dcf666e2a5b3adfb8b08000000";
const END_OF_OUR_CHAIN: &str = "\
    64000000110a000000000000000000000100000008000f0000000002080004000000000308000600f691144f \
    180002006f726967696e616c2d707265726f7574696e670012000100666c616e6e656c2d7472616365000000 \
    0c00050008000100ffffffff";
const OUR_POLICY: &str = "\
    60000000110a000000000000000000000100000008000f0000000002080004000000000108000600f691144f \
    180002006f726967696e616c2d707265726f7574696e670012000100666c616e6e656c2d7472616365000000 \
    0800100000000001";
const JUMP: &str = "\
    c8000000110a000000000000000000000100000008000f0000000002080004000000000308000600f691144f \
    0c000200666f7277617264000b00010066696c74657200000c00030000000000000000031400050008000100 \
    fffffffd08000200706f6c0008000a000000000206000b000001000008000c000000000306000d0000010000 \
    1800080045000054efeb40003f0137b70a0100020a0200021800090008001fa74d33000190600c6b00000000 \
    2686090012000700b64527dcf666e2a5b3adfb8b08000000";
const END_OF_CHAIN: &str = "\
    4c000000110a000000000000000000000100000008000f0000000002080004000000000308000600f691144f \
    08000200706f6c000b00010066696c74657200000c00050008000100ffffffff";
const ACCEPTING_POLICY: &str = "\
    4c000000110a000000000000000000000100000008000f0000000002080004000000000108000600f691144f \
    0c000200666f7277617264000b00010066696c74657200000800100000000001";
const LAST_HOOK: &str = "\
    c0000000110a000000000000000000000100000008000f0000000002080004000000000308000600f691144f \
    10000200706f7374726f7574696e670012000100666c616e6e656c2d74726163650000000c00050008000100 \
    ffffffff08000a000000000206000b000001000008000c000000000306000d00000100001800080045000054 \
    efeb40003f0137b70a0100020a0200021800090008001fa74d33000190600c6b000000002686090012000700 \
    b64527dcf666e2a5b3adfb8b08000000";
const LAST_POLICY: &str = "\
    58000000110a000000000000000000000100000008000f0000000002080004000000000108000600f691144f \
    10000200706f7374726f7574696e670012000100666c616e6e656c2d74726163650000000800100000000001";
const DROPPING_POLICY: &str = "\
    4c000000110a000000000000000000000100000008000f0000000002080004000000000108000600d904770b \
    0c000200666f7277617264000b00010066696c74657200000800100000000000";
const DROP: &str = "\
    58000000110a000000000000000000000100000008000f0000000002080004000000000308000600024ecc45 \
    08000200706f6c000b00010066696c74657200000c00030000000000000000040c0005000800010000000000";

fn bytes(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte =
        |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("a byte");
    hex.chunks(2).map(byte).collect()
}

fn table(name: &str) -> NftablesTable {
    NftablesTable {
        family: 1,
        name: name.to_owned(),
    }
}

fn decoded(datagram: &[u8]) -> Vec<TraceEvent> {
    decode(datagram, &table("flannel-trace"))
}

fn step(hex: &str) -> (u32, Option<HeaderFingerprint>, TraceStep) {
    match decoded(&bytes(hex)).pop() {
        Some(TraceEvent::Step {
            packet,
            fingerprint,
            step,
        }) => (packet, fingerprint, step),
        other => panic!("{other:?}"),
    }
}

fn judged(hex: &str) -> (String, Option<u64>, TraceVerdict) {
    match step(hex).2 {
        TraceStep::Judged(TraceJudgement {
            table: of,
            chain,
            rule,
            verdict,
        }) => {
            assert_eq!(of, table("filter"));
            (chain, rule, verdict)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_begins_and_ends_in_our_table() {
    let [begun, last, policy] = [BEGIN, LAST_HOOK, LAST_POLICY].map(step);
    assert_eq!(
        (begun.0, begun.2),
        (0xf691_144f, TraceStep::Begun(TraceDirection::Original))
    );
    assert_eq!((last.0, last.2), (begun.0, TraceStep::Passed));
    assert!(
        begun.1.is_some() && begun.1 == last.1,
        "routing keeps the fingerprint"
    );
    assert_eq!(policy, (begun.0, None, TraceStep::Passed));
    for quiet in [END_OF_OUR_CHAIN, OUR_POLICY] {
        assert_eq!(decoded(&bytes(quiet)), []);
    }
}

#[test]
fn rules_ends_of_chains_and_policies_judge() {
    let (forward, pol) = (|| "forward".to_owned(), || "pol".to_owned());
    assert_eq!(
        judged(JUMP),
        (forward(), Some(3), TraceVerdict::Jump("pol".to_owned()))
    );
    assert_eq!(judged(END_OF_CHAIN), (pol(), None, TraceVerdict::Continue));
    assert_eq!(
        judged(ACCEPTING_POLICY),
        (forward(), None, TraceVerdict::Accept)
    );
    assert_eq!(
        judged(DROPPING_POLICY),
        (forward(), None, TraceVerdict::Drop)
    );
    assert_eq!(judged(DROP), (pol(), Some(4), TraceVerdict::Drop));
}

#[test]
fn verdicts_are_read_without_the_bits_above_them() {
    assert_eq!(named(0x0007_0003, None), TraceVerdict::Queue);
    assert_eq!(named(0, None), TraceVerdict::Drop);
    assert_eq!(
        named(-4, Some("there".to_owned())),
        TraceVerdict::Goto("there".to_owned())
    );
    assert_eq!(named(-9, None), TraceVerdict::Other(-9));
}

#[test]
fn another_table_begins_no_trace() {
    let of_others = decode(&bytes(BEGIN), &table("flannel-trace-7"));
    assert!(
        matches!(
            of_others.as_slice(),
            [TraceEvent::Step {
                step: TraceStep::Judged(_),
                ..
            }]
        ),
        "{of_others:?}"
    );
}

#[test]
fn fuzz_trace_messages() {
    let seeds = [
        bytes(BEGIN),
        [bytes(JUMP), bytes(DROP)].concat(),
        bytes(DROPPING_POLICY),
    ];
    flannel_fuzz::run(
        "trace_messages",
        &seeds.each_ref().map(Vec::as_slice),
        |datagram| {
            drop(decoded(datagram));
        },
    );
}
