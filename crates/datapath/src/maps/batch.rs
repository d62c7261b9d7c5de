//! Reads whole maps, hundreds of entries at a call (`BPF_MAP_LOOKUP_BATCH`, Linux 5.6): aya's
//! iterators need two calls for each entry of a hash, and one for each of an array.
//!
//! A hash is read bucket by bucket (`__htab_map_lookup_and_delete_batch()` in
//! [kernel/bpf/hashtab.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/hashtab.c)): an entry that exists
//! all the time is read once, whatever else comes and goes.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd as _, AsRawFd as _},
    ptr,
};

use aya::{
    Pod,
    maps::{MapData, MapError},
    sys::SyscallError,
};
use nix::libc;

use crate::{DatapathError, PinRoot, maps::pinned_map::data_from_pin};

/// `BPF_MAP_LOOKUP_BATCH` of linux/bpf.h.
const MAP_LOOKUP_BATCH: libc::c_long = 24;
/// Entries that are read at once, to begin with.
const BATCH: usize = 256;

/// A map whose entries are read as a whole, by the key and the value of the programs.
pub(crate) struct BatchMap<K, V> {
    map: MapData,
    name: &'static str,
    types: PhantomData<(K, V)>,
}

impl<K: Pod, V: Pod> BatchMap<K, V> {
    /// Opens the pin of the map of this name.
    pub(crate) fn open(pins: &PinRoot, name: &'static str) -> Result<Self, DatapathError> {
        let map = data_from_pin(pins, name)?;
        let info = map.info().map_err(DatapathError::map(name))?;
        let [key, value] = [info.key_size(), info.value_size()].map(|size| size as usize);
        if key != size_of::<K>() {
            let error = MapError::InvalidKeySize {
                size: size_of::<K>(),
                expected: key,
            };
            return Err(DatapathError::map(name)(error));
        }
        if value != size_of::<V>() {
            let error = MapError::InvalidValueSize {
                size: size_of::<V>(),
                expected: value,
            };
            return Err(DatapathError::map(name)(error));
        }
        Ok(Self {
            map,
            name,
            types: PhantomData,
        })
    }

    /// Every entry.
    pub(crate) fn entries(&self) -> Entries<'_, K, V> {
        self.in_batches_of(BATCH)
    }

    /// The same with this batch size; a larger one if a bucket of the kernel has more entries.
    pub(crate) fn in_batches_of(&self, size: usize) -> Entries<'_, K, V> {
        let mut entries = Entries {
            map: self,
            keys: Vec::new(),
            values: Vec::new(),
            room: 0,
            read: 0,
            at: 0,
            next: Position::Begin,
        };
        entries.make_room(size);
        entries
    }
}

/// The place from which the kernel goes on.
#[derive(Clone, Copy)]
enum Position {
    Begin,
    /// Behind what was read, by the kernel's number.
    Behind(u32),
    End,
}

/// The entries of a map.
pub(crate) struct Entries<'a, K, V> {
    map: &'a BatchMap<K, V>,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// The entries that both have room for, those that were read, and those of them that were
    /// passed on.
    room: usize,
    read: usize,
    at: usize,
    next: Position,
}

/// `struct { ... } batch` of `union bpf_attr`.
#[repr(C)]
struct Lookup {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    flags: [u64; 2],
}

impl<K: Pod, V: Pod> Entries<'_, K, V> {
    fn make_room(&mut self, entries: usize) {
        self.room = entries;
        self.keys.resize(entries * size_of::<K>(), 0);
        self.values.resize(entries * size_of::<V>(), 0);
    }

    /// Reads the next entries.
    fn fill(&mut self) -> io::Result<()> {
        loop {
            match self.look_up() {
                // A bucket of the hash has more entries than there is room for.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    self.make_room(2 * self.room);
                }
                other => return other,
            }
        }
    }

    fn look_up(&mut self) -> io::Result<()> {
        let (place, mut next) = (self.next, 0_u32);
        let from = if let Position::Behind(from) = &place {
            ptr::from_ref(from)
        } else {
            ptr::null()
        } as u64;
        let mut batch = Lookup {
            from,
            next: (&raw mut next) as u64,
            keys: self.keys.as_mut_ptr() as u64,
            values: self.values.as_mut_ptr() as u64,
            count: u32::try_from(self.room).unwrap_or(u32::MAX),
            map_fd: self.map.map.fd().as_fd().as_raw_fd().cast_unsigned(),
            flags: [0; 2],
        };
        // SAFETY: the kernel reads and writes `batch`, whose size it is given, and the positions;
        // it writes at most `count` keys and values of the sizes of the map, which are those of `K`
        // and `V`, into buffers that have room for as many. All of it outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                MAP_LOOKUP_BATCH,
                &raw mut batch,
                size_of::<Lookup>(),
            )
        };
        let is_end = match (result, io::Error::last_os_error()) {
            (0.., _) => false,
            (_, error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            (_, error) => return Err(error),
        };
        (self.read, self.at) = ((batch.count as usize).min(self.room), 0);
        self.next = if is_end {
            Position::End
        } else {
            Position::Behind(next)
        };
        Ok(())
    }

    /// The entry with this number of those that were read.
    fn entry(&self, number: usize) -> (K, V) {
        debug_assert!(number < self.room);
        let key = self.keys[number * size_of::<K>()..].as_ptr().cast::<K>();
        let value = self.values[number * size_of::<V>()..].as_ptr().cast::<V>();
        // SAFETY: both buffers have `room` entries, all of whose bytes are written; every bit
        // pattern is a value of a `Pod`.
        let key = unsafe { key.read_unaligned() };
        // SAFETY: as above.
        let value = unsafe { value.read_unaligned() };
        (key, value)
    }
}

impl<K: Pod, V: Pod> Iterator for Entries<'_, K, V> {
    type Item = Result<(K, V), DatapathError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at >= self.read {
            if matches!(self.next, Position::End) {
                return None;
            }
            if let Err(io_error) = self.fill() {
                self.next = Position::End;
                let error = SyscallError {
                    call: "bpf_map_lookup_batch",
                    io_error,
                };
                return Some(Err(DatapathError::map(self.map.name)(
                    MapError::SyscallError(error),
                )));
            }
        }
        self.at += 1;
        Some(Ok(self.entry(self.at - 1)))
    }
}
