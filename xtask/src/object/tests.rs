//! Programs made by hand, and one object with everything that a real one has.

use std::collections::HashMap;

use object::{
    Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope,
    elf::{R_BPF_64_32, R_BPF_64_64},
    write::{self, Relocation, RelocationFlags, StandardSection, Symbol, SymbolSection},
};

use super::{
    Finding, analysis, check,
    elf::{Function, Map, Object},
    insn::{Instruction, SIZE},
};

const KEY_AND_VALUE: Map = Map { key: 8, value: 12 };
/// `BPF_REG_FP`.
const FP: u8 = 10;

const LOOK_UP: i32 = 1;
const UPDATE: i32 = 2;
const STORE_BYTES: i32 = 9;
const LOAD_BYTES: i32 = 26;
const REDIRECT_NEIGH: i32 = 152;
const CHECK_MTU: i32 = 163;

const fn slot(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        destination,
        source,
        offset,
        immediate,
    }
}

/// `r = number`
const fn set(register: u8, number: i32) -> Instruction {
    slot(0xb7, register, 0, 0, number)
}

/// `to = from`
const fn copy(to: u8, from: u8) -> Instruction {
    slot(0xbf, to, from, 0, 0)
}

/// `r += number`
const fn add(register: u8, number: i32) -> Instruction {
    slot(0x07, register, 0, 0, number)
}

/// `*(base + offset) = from`, of `size` bytes.
const fn store(size: u8, base: u8, offset: i16, from: u8) -> Instruction {
    slot(0x63 | width(size), base, from, offset, 0)
}

/// `to = *(base + offset)`, of `size` bytes.
const fn load(size: u8, to: u8, base: u8, offset: i16) -> Instruction {
    slot(0x61 | width(size), to, base, offset, 0)
}

const fn width(size: u8) -> u8 {
    match size {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

/// Returns a branch that skips `by` instructions if `r1 == 0`.
const fn branch(by: i16) -> Instruction {
    slot(0x15, 1, 0, by, 0)
}

const fn jump(by: i16) -> Instruction {
    slot(0x05, 0, 0, by, 0)
}

const fn helper(number: i32) -> Instruction {
    slot(0x85, 0, 0, 0, number)
}

/// The function behind the program.
const CALL: Instruction = slot(0x85, 0, 1, 0, -1);
/// `r1 = map`, and its second slot.
const LOAD_MAP: [Instruction; 2] = [slot(0x18, 1, 1, 0, 0), slot(0, 0, 0, 0, 0)];
const EXIT: Instruction = slot(0x95, 0, 0, 0, 0);

/// `r = fp + offset`
const fn stack(register: u8, offset: i32) -> [Instruction; 2] {
    [copy(register, FP), add(register, offset)]
}

/// Findings in a program with one map, and in the function behind it that it may call.
fn findings(program: &[Instruction], called: (&str, &[Instruction])) -> Vec<Finding> {
    let made = |name: &str, section: &str, code: &[Instruction]| {
        let at = |wanted: Instruction| {
            code.iter()
                .enumerate()
                .filter(move |(_, is)| **is == wanted)
        };
        Function {
            name: name.to_owned(),
            section: section.to_owned(),
            start: 100,
            code: code.to_vec(),
            calls: at(CALL).map(|(at, _)| (at, 1)).collect(),
            maps: at(LOAD_MAP[0])
                .map(|(at, _)| (at, 0))
                .collect::<HashMap<_, _>>(),
        }
    };
    let functions = vec![
        made("program", "classifier", program),
        made(called.0, ".text", called.1),
    ];
    analysis::analyse(&Object {
        functions,
        maps: vec![KEY_AND_VALUE],
    })
}

/// The problems of a program, in words.
fn problems(program: &[Instruction]) -> Vec<String> {
    problems_with(program, ("unused", &[EXIT]))
}

fn problems_with(program: &[Instruction], called: (&str, &[Instruction])) -> Vec<String> {
    findings(program, called)
        .iter()
        .map(|finding| format!("{}: {}", finding.index, finding.problem))
        .collect()
}

/// Hands `len` bytes of the stack to the helper that writes them into a packet.
fn hand_over(offset: i32, len: i32) -> Vec<Instruction> {
    [
        &stack(3, offset)[..],
        &[set(4, len), helper(STORE_BYTES), EXIT],
    ]
    .concat()
}

const NONE: [&str; 0] = [];

#[test]
fn an_access_at_no_multiple_of_its_size_is_refused() {
    assert_eq!(
        problems(&[store(8, FP, -12, 6), EXIT]),
        ["100: 8 bytes of the stack at -12, which is no multiple of 8"]
    );
    for (size, offset) in [(2, -3), (4, -6), (8, -12)] {
        let expected =
            format!("{size} bytes of the stack at {offset}, which is no multiple of {size}");
        assert_eq!(
            problems(&[store(size, FP, offset, 6), EXIT]),
            [format!("100: {expected}")]
        );
        let written = [
            store(8, FP, -8, 6),
            store(8, FP, -16, 6),
            load(size, 6, FP, offset),
            EXIT,
        ];
        assert_eq!(problems(&written), [format!("102: {expected}")]);
    }
    for (size, offset) in [(1, -3), (2, -6), (4, -12), (8, -16)] {
        assert_eq!(
            problems(&[store(size, FP, offset, 6), load(size, 6, FP, offset), EXIT]),
            NONE,
            "{size}"
        );
    }
}

#[test]
fn an_address_is_followed_through_registers_and_the_stack() {
    let derived = [&stack(2, -20)[..], &[store(8, 2, 8, 6), EXIT]].concat();
    assert_eq!(
        problems(&derived),
        ["102: 8 bytes of the stack at -12, which is no multiple of 8"]
    );
    let taken_off = [
        copy(2, FP),
        slot(0x17, 2, 0, 0, 20),
        store(8, 2, 8, 6),
        EXIT,
    ];
    assert_eq!(
        problems(&taken_off),
        ["102: 8 bytes of the stack at -12, which is no multiple of 8"]
    );
    let saved = [
        &stack(2, -20)[..],
        &[
            store(8, FP, -8, 2),
            load(8, 3, FP, -8),
            store(8, 3, 8, 6),
            EXIT,
        ],
    ]
    .concat();
    assert_eq!(
        problems(&saved),
        ["104: 8 bytes of the stack at -12, which is no multiple of 8"]
    );
    assert_eq!(
        problems(&[store(8, 6, 4, 7), EXIT]),
        NONE,
        "it is not on the stack"
    );
}

#[test]
fn an_access_outside_of_the_stack_is_refused() {
    assert_eq!(
        problems(&[store(8, FP, -520, 6), EXIT]),
        ["100: 8 bytes at -520, outside of the stack"]
    );
    assert_eq!(
        problems(&[store(8, FP, 0, 6), EXIT]),
        ["100: 8 bytes at 0, outside of the stack"]
    );
    assert_eq!(
        problems(&hand_over(-8, 16)),
        ["103: bpf_skb_store_bytes gets r3: 16 bytes at -8, outside of the stack"]
    );
}

/// Linux 5.15 refused this of `to_tunnel`: "invalid indirect read from stack R2 off -20+8 size 20".
#[test]
fn an_ipv4_next_hop_of_which_four_bytes_of_the_union_are_written_is_refused() {
    let hand_over = [set(3, 20), set(4, 0), helper(REDIRECT_NEIGH), EXIT];
    let wide = [slot(0x18, 1, 0, 0, 0), slot(0, 0, 0, 0, 2)];
    let before = [
        &[store(4, FP, -16, 8)],
        &wide[..],
        &[store(8, FP, -24, 1)],
        &stack(2, -20),
        &hand_over,
    ]
    .concat();
    let found = findings(&before, ("unused", &[EXIT]));
    let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "program, instruction 108 of classifier, `call 152`: bpf_redirect_neigh gets r2: 20 \
             bytes of the stack at -20, \
          of which a byte of -12 to -1 is not written on every path; Linux before 6.3 refuses that"
        ]
    );
    let zeroed = [
        &before[..1],
        &[store(4, FP, -4, 6), store(8, FP, -12, 6)],
        &before[1..],
    ]
    .concat();
    assert_eq!(
        problems(&zeroed),
        ["102: 8 bytes of the stack at -12, which is no multiple of 8"]
    );
    let aligned = [
        &[
            store(4, FP, -20, 1),
            store(8, FP, -16, 2),
            store(8, FP, -8, 3),
        ],
        &stack(2, -20)[..],
        &hand_over,
    ];
    assert_eq!(problems(&aligned.concat()), NONE);
}

#[test]
fn a_byte_that_only_one_path_writes_is_none_for_a_helper() {
    let one = [&[branch(1), store(8, FP, -8, 6)], &hand_over(-8, 8)[..]].concat();
    assert_eq!(
        problems(&one),
        [
            "105: bpf_skb_store_bytes gets r3: 8 bytes of the stack at -8, of which a byte of -8 \
             to -1 is not written on \
          every path; Linux before 6.3 refuses that"
        ]
    );
    let both = [
        &[branch(2), store(8, FP, -8, 6), jump(1), store(8, FP, -8, 7)],
        &hand_over(-8, 8)[..],
    ]
    .concat();
    assert_eq!(problems(&both), NONE);
    let half = [
        &[branch(2), store(8, FP, -8, 6), jump(1), store(4, FP, -8, 7)],
        &hand_over(-8, 8)[..],
    ]
    .concat();
    assert!(
        problems(&half)[0].contains("a byte of -4 to -1 is not written"),
        "{:?}",
        problems(&half)
    );
    let looped = [
        &[branch(2), store(8, FP, -8, 6), jump(-3)],
        &hand_over(-8, 8)[..],
    ]
    .concat();
    assert_eq!(problems(&looped).len(), 1, "the body may not be entered");
}

#[test]
fn an_instruction_may_read_what_a_path_wrote_but_not_what_none_did() {
    assert_eq!(
        problems(&[branch(1), store(8, FP, -8, 6), load(8, 6, FP, -8), EXIT]),
        NONE
    );
    let unwritten = problems(&[store(4, FP, -8, 6), load(8, 6, FP, -8), EXIT]);
    assert!(
        unwritten[0].starts_with("101: 8 bytes of the stack at -8, of which a byte of -4 to -1"),
        "{unwritten:?}"
    );
    let one_byte = problems(&[load(1, 6, FP, -1), EXIT]);
    assert!(
        one_byte[0].starts_with("100: 1 bytes of the stack at -1, of which byte -1 is"),
        "{one_byte:?}"
    );
}

#[test]
fn keys_and_values_are_as_long_as_the_map_says() {
    let look_up = [&LOAD_MAP[..], &stack(2, -8), &[helper(LOOK_UP), EXIT]].concat();
    assert!(
        problems(&look_up)[0]
            .starts_with("104: bpf_map_lookup_elem gets r2: 8 bytes of the stack at -8")
    );
    assert_eq!(
        problems(&[&[store(8, FP, -8, 6)], &look_up[..]].concat()),
        NONE
    );
    let update = [
        &LOAD_MAP[..],
        &stack(2, -8),
        &stack(3, -24),
        &[helper(UPDATE), EXIT],
    ]
    .concat();
    let written = [store(8, FP, -8, 6), store(8, FP, -24, 6)];
    let short = problems(&[&written, &update[..]].concat());
    assert!(short[0].starts_with(
        "108: bpf_map_update_elem gets r3: 12 bytes of the stack at -24, of which a byte of \
             -16 to -13"
    ));
    assert_eq!(
        problems(&[&written[..], &[store(4, FP, -16, 6)], &update[..]].concat()),
        NONE
    );
    let unknown = [
        &[store(8, FP, -8, 6)],
        &stack(2, -8)[..],
        &[helper(LOOK_UP), EXIT],
    ]
    .concat();
    assert_eq!(
        problems(&unknown),
        ["103: bpf_map_lookup_elem gets memory on the stack for a map that is not known"]
    );
}

#[test]
fn a_helper_writes_what_its_table_says() {
    let loaded = [
        &stack(3, -16)[..],
        &[set(4, 16), helper(LOAD_BYTES)],
        &hand_over(-16, 16),
    ]
    .concat();
    assert_eq!(problems(&loaded), NONE);
    assert_eq!(
        problems(&[&loaded[..4], &hand_over(-16, 20)].concat()).len(),
        1
    );
    let mtu = [&stack(3, -4)[..], &[helper(CHECK_MTU), EXIT]].concat();
    assert!(
        problems(&mtu)[0].starts_with("102: bpf_check_mtu gets r3: 4 bytes of the stack at -4")
    );
    assert_eq!(problems(&[&[store(4, FP, -4, 6)], &mtu[..]].concat()), NONE);
}

#[test]
fn what_cannot_be_followed_is_refused_and_not_passed() {
    let written = store(8, FP, -8, 6);
    let length = [
        &[written],
        &stack(3, -8)[..],
        &[copy(4, 6), helper(STORE_BYTES), EXIT],
    ]
    .concat();
    assert_eq!(
        problems(&length),
        [
            "104: bpf_skb_store_bytes gets a length in r4 that is no constant, of memory on the \
             stack"
        ]
    );
    let address = [
        &[written],
        &stack(3, -8)[..],
        &[branch(1), add(3, 4), set(4, 4), helper(STORE_BYTES), EXIT],
    ]
    .concat();
    assert_eq!(
        problems(&address),
        [
            "106: bpf_skb_store_bytes gets r3: an address on the stack that differs from path to \
             path"
        ]
    );
    let sum = [copy(3, FP), slot(0x0f, 3, 6, 0, 0), store(1, 3, 0, 6), EXIT];
    assert_eq!(
        problems(&sum),
        ["102: an address on the stack that differs from path to path"]
    );
    assert_eq!(
        problems(&[helper(9999), EXIT]),
        ["100: helper 9999 is not in xtask/src/object/helpers.rs: add its arguments there"]
    );
    assert_eq!(
        problems(&[set(0, 0)]),
        ["101: the instruction is not known to xtask/src/object/insn.rs"],
        "it runs out"
    );
}

#[test]
fn a_function_writes_to_its_callers_stack() {
    let program = [&stack(1, -8)[..], &[CALL], &hand_over(-8, 8)].concat();
    assert_eq!(
        problems_with(&program, ("fills", &[store(8, 1, 0, 1), EXIT])),
        NONE
    );
    let sometimes = problems_with(&program, ("fills", &[branch(1), store(8, 1, 0, 1), EXIT]));
    assert!(
        sometimes[0].starts_with("106: bpf_skb_store_bytes gets r3: 8 bytes"),
        "{sometimes:?}"
    );
    let reader = [&[copy(3, 1)], &[set(4, 8), helper(STORE_BYTES), EXIT][..]].concat();
    let inside = findings(
        &[&stack(1, -8)[..], &[CALL, EXIT]].concat(),
        ("reads", &reader),
    );
    assert_eq!(inside.len(), 1);
    assert_eq!(
        (inside[0].function.as_str(), inside[0].index),
        ("reads", 102)
    );
    let own = [
        &stack(1, -8)[..],
        &[store(8, 1, 0, 6), CALL],
        &hand_over(-16, 8),
    ]
    .concat();
    assert_eq!(
        problems_with(&own, ("fills", &[store(8, FP, -16, 6), EXIT])).len(),
        1,
        "each function has its stack"
    );
    let endless = findings(&[CALL, EXIT], ("calls itself", &[CALL, EXIT]));
    assert_eq!(
        endless[0].problem.to_string(),
        "calls nest deeper than eight functions"
    );
}

/// Linux 6.1 refused this of `to_tunnel`: "combined stack size of 3 calls is 544. Too large".
#[test]
fn functions_take_no_more_than_512_bytes_together() {
    let uses = |bytes: i16| [store(8, FP, -bytes, 6), CALL, EXIT];
    let called = |bytes: i16| [store(8, FP, -bytes, 6), EXIT];
    assert_eq!(problems_with(&uses(256), ("called", &called(256))), NONE);
    let rounded = ["101: 544 bytes of stack, 512 are allowed: program 256, called 288"];
    assert_eq!(problems_with(&uses(256), ("called", &called(264))), rounded);
    assert_eq!(problems_with(&uses(256), ("called", &called(288))), rounded);
    let without = ["101: 544 bytes of stack, 512 are allowed: program 512, called 32"];
    assert_eq!(
        problems_with(&uses(512), ("called", &[EXIT])),
        without,
        "an empty stack counts too"
    );
    let of_caller = [&stack(1, -488)[..], &[CALL, EXIT]].concat();
    assert_eq!(
        problems_with(&of_caller, ("fills", &[store(8, 1, 0, 6), EXIT])),
        ["102: 544 bytes of stack, 512 are allowed: program 512, fills 32"]
    );
}

#[test]
fn the_compilers_functions_on_memory_are_known() {
    let loops = [branch(1), jump(-2), EXIT];
    let cleared = [&stack(1, -16)[..], &[set(3, 16), CALL], &hand_over(-16, 16)].concat();
    assert_eq!(problems_with(&cleared, ("memset", &loops)), NONE);
    assert_eq!(problems_with(&cleared, ("other", &loops)).len(), 1);
    let copied = [
        &stack(1, -16)[..],
        &stack(2, -32),
        &[set(3, 16), CALL],
        &hand_over(-16, 16),
    ]
    .concat();
    let unwritten = problems_with(&copied, ("memmove", &loops));
    assert_eq!(unwritten.len(), 2, "{unwritten:?}");
    assert!(
        unwritten[0].starts_with("105: memmove gets r2: 16 bytes of the stack at -32"),
        "{unwritten:?}"
    );
}

/// An object with one map and one program, which calls a function that looks a key up.
fn object(function: &[Instruction]) -> Vec<u8> {
    let endianness = if cfg!(target_endian = "little") {
        Endianness::Little
    } else {
        Endianness::Big
    };
    let mut object = write::Object::new(BinaryFormat::Elf, Architecture::Bpf, endianness);
    let maps = object.add_section(Vec::new(), b"maps".to_vec(), object::SectionKind::Data);
    let definition: Vec<u8> = [1_u32, 4, 8, 1, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let map = object.add_symbol(symbol(b"MAP", SymbolKind::Data));
    object.add_symbol_data(map, maps, &definition, 4);
    let text = object.section_id(StandardSection::Text);
    let callee = object.add_symbol(symbol(b"look_up", SymbolKind::Text));
    let at = object.add_symbol_data(callee, text, &bytes(function), 8);
    let load = function
        .iter()
        .position(|instruction| *instruction == LOAD_MAP[0])
        .expect("it loads the map");
    refer(
        &mut object,
        text,
        at + (load * SIZE) as u64,
        map,
        R_BPF_64_64,
    );
    let programs = object.add_section(
        Vec::new(),
        b"classifier".to_vec(),
        object::SectionKind::Text,
    );
    let program = object.add_symbol(symbol(b"program", SymbolKind::Text));
    let at = object.add_symbol_data(program, programs, &bytes(&[CALL, EXIT]), 8);
    refer(&mut object, programs, at, callee, R_BPF_64_32);
    object.write().expect("an object")
}

fn symbol(name: &[u8], kind: SymbolKind) -> Symbol {
    Symbol {
        name: name.to_vec(),
        value: 0,
        size: 0,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::None,
    }
}

fn bytes(code: &[Instruction]) -> Vec<u8> {
    code.iter().flat_map(Instruction::encode).collect()
}

fn refer(
    object: &mut write::Object<'_>,
    section: write::SectionId,
    offset: u64,
    symbol: write::SymbolId,
    r_type: u32,
) {
    let flags = RelocationFlags::Elf { r_type };
    object
        .add_relocation(
            section,
            Relocation {
                offset,
                symbol,
                addend: 0,
                flags,
            },
        )
        .expect("a relocation");
}

#[test]
fn an_object_is_read_with_its_maps_calls_and_functions() {
    let look_up = [&LOAD_MAP[..], &stack(2, -4), &[helper(LOOK_UP), EXIT]].concat();
    let good = [&[store(4, FP, -4, 1)], &look_up[..]].concat();
    check(&object(&good)).expect("the key is written");
    let refused = check(&object(&look_up))
        .expect_err("the key is not written")
        .to_string();
    assert_eq!(
        refused,
        "the verifiers of supported kernels refuse 1 instructions:\n  look_up, instruction 4 of \
         .text, `call 1`: \
         bpf_map_lookup_elem gets r2: 4 bytes of the stack at -4, of which a byte of -4 to -1 is \
         not written on every \
         path; Linux before 6.3 refuses that"
    );
}

#[test]
fn what_is_no_object_is_refused() {
    assert!(check(b"no ELF file").is_err());
    let empty = write::Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little)
        .write()
        .expect("an object");
    assert_eq!(
        check(&empty).expect_err("no program").to_string(),
        "the BPF object has no program"
    );
}
