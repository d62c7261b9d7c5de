//! Empties the maps of loaded programs, so that the next test finds them as after a load: a load
//! takes half a second of CPU, and each of some 300 benches would need one.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::{
    maps::{Map, MapData, MapInfo, MapType, RingBuf},
    programs::ProgramInfo,
};
use flannel_common::abi::program::Program;
use flannel_datapath::PinRoot;
use nix::libc;

/// Commands of `bpf()` ([include/uapi/linux/bpf.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/bpf.h)).
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const MAP_GET_NEXT_KEY: libc::c_long = 4;
const MAP_UPDATE_BATCH: libc::c_long = 26;

/// `BPF_F_RDONLY_PROG`: the constants of the programs.
const READ_ONLY: u32 = 1 << 7;

/// The maps of the pinned programs, those without a pin included.
fn maps_of_programs(pins: &PinRoot) -> BTreeSet<u32> {
    let maps = |program| {
        let info = ProgramInfo::from_pin(pins.program(program)).expect("the program is pinned");
        info.map_ids()
            .expect("the kernel knows the maps of a program")
            .expect("Linux 4.15 names them")
    };
    Program::ALL.into_iter().flat_map(maps).collect()
}

/// Empties all maps of the pinned programs.
pub(crate) fn wipe(pins: &PinRoot) {
    for id in maps_of_programs(pins) {
        let map = MapData::from_id(id).expect("a map of a pinned program exists");
        let info = map.info().expect("the kernel knows its maps");
        match info.map_type().expect("a type that aya knows") {
            MapType::RingBuf => drain(map),
            MapType::Array if info.map_flags() & READ_ONLY != 0 => {}
            MapType::Array => zero(&map, &info),
            MapType::PerCpuArray => zero_on_each_cpu(&map, &info),
            MapType::Hash | MapType::LruHash => clear(&map, &info),
            other => panic!("no way to empty a map of type {other:?}"),
        }
    }
}

fn drain(map: MapData) {
    let map = Map::from_map_data(map).expect("a type that aya knows");
    let mut ring = RingBuf::try_from(map).expect("a ring buffer");
    while ring.next().is_some() {}
}

fn descriptor(map: &MapData) -> u32 {
    map.fd().as_fd().as_raw_fd().cast_unsigned()
}

/// `struct { ... } batch` of `union bpf_attr`.
#[repr(C)]
struct Update {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    flags: [u64; 2],
}

fn zero(map: &MapData, info: &MapInfo) {
    let keys: Vec<u32> = (0..info.max_entries()).collect();
    let values = vec![0_u8; keys.len() * info.value_size() as usize];
    let batch = Update {
        from: 0,
        next: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: info.max_entries(),
        map_fd: descriptor(map),
        flags: [0; 2],
    };
    // SAFETY: the kernel reads as many keys and values as `count` says, of the sizes that it gave,
    // from buffers that have as many and outlive the call. It writes only `count`.
    unsafe { bpf(MAP_UPDATE_BATCH, batch) }.expect("an array takes zeros");
}

/// Before Linux 5.13 it takes no batches.
fn zero_on_each_cpu(map: &MapData, info: &MapInfo) {
    let cpus = aya::util::nr_cpus().expect("the number of CPUs");
    // The kernel rounds each CPU's value up to eight bytes.
    let value = vec![0_u8; cpus * info.value_size().next_multiple_of(8) as usize];
    for key in 0..info.max_entries() {
        let element = Element::new(map, (&raw const key) as u64, value.as_ptr() as u64);
        // SAFETY: the kernel reads a key of four bytes and a value of the size that it gave for
        // each CPU. Both outlive the call.
        unsafe { bpf(MAP_UPDATE_ELEM, element) }.expect("an array takes zeros");
    }
}

/// The attributes of commands about one element.
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    /// The value, or the next key.
    value: u64,
    flags: u64,
}

impl Element {
    fn new(map: &MapData, key: u64, value: u64) -> Self {
        Self {
            map_fd: descriptor(map),
            padding: 0,
            key,
            value,
            flags: 0,
        }
    }
}

fn clear(map: &MapData, info: &MapInfo) {
    let mut key = vec![0_u8; info.key_size() as usize];
    let at = key.as_mut_ptr() as u64;
    // SAFETY: the kernel writes a key of the size that it gave into a buffer of that size, which
    // outlives the calls, and reads it from there.
    while unsafe { bpf(MAP_GET_NEXT_KEY, Element::new(map, 0, at)) }.is_ok() {
        // SAFETY: as above.
        unsafe { bpf(MAP_DELETE_ELEM, Element::new(map, at, 0)) }.expect("the key was there");
    }
}

/// Calls `bpf()`.
///
/// # Safety
/// The attributes are those of the command, and their addresses are valid for it.
unsafe fn bpf<T>(command: libc::c_long, mut attributes: T) -> io::Result<()> {
    // SAFETY: the caller's promise; the kernel is given the size of the attributes.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attributes, size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
