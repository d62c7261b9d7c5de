//! Where the running kernel keeps a member of one of its structs, by its own type information (BTF). Pure but for the
//! file it reads.
//!
//! Only what that takes: the names are found among the strings, then types are walked in order, their sizes known by kind,
//! until the struct is found (Documentation/bpf/btf.rst). The kernel's BTF is some six megabytes: it is read through a small
//! buffer, and is never in memory as a whole.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read, Seek, SeekFrom},
};

/// The kernel's BTF.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const KIND_STRUCT: u32 = 4;
/// A type: name, kind and length, size or type. A member of a struct: name, type, offset.
const ENTRY_LEN: u32 = 12;

/// The offset in bytes of `skb->_nfct`; none where the kernel has no BTF or no conntrack.
pub(super) fn nfct_offset() -> Option<u32> {
    member_offset(File::open(VMLINUX).ok()?, "sk_buff", "_nfct")
}

/// The offset in bytes of a direct member of a struct.
fn member_offset(btf: impl Read + Seek, structure: &str, member: &str) -> Option<u32> {
    let mut btf = BufReader::new(btf);
    let header: [u8; HEADER_LEN] = read(&mut btf)?;
    if u16::from_ne_bytes([header[0], header[1]]) != MAGIC {
        return None;
    }
    let [header_len, types_at, types_len, strings_at, strings_len] = [4, 8, 12, 16, 20].map(|at| word(&header, at));
    let section = |at: u32| SeekFrom::Start(u64::from(header_len) + u64::from(at));
    btf.seek(section(strings_at)).ok()?;
    let [structures, members] = find_names(&mut btf, strings_len, [structure, member])?;
    btf.seek(section(types_at)).ok()?;
    let mut left = types_len;
    while left > 0 {
        let entry: [u8; ENTRY_LEN as usize] = read(&mut btf)?;
        let info = word(&entry, 4);
        let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
        if kind == KIND_STRUCT && structures.contains(&word(&entry, 0)) {
            return offset_of(&mut btf, count, &members);
        }
        let trailer = trailer_len(kind, count)?;
        btf.seek_relative(trailer.into()).ok()?;
        left = left.checked_sub(ENTRY_LEN + trailer)?;
    }
    None
}

/// Where each of the names stands among the strings, alone or as the end of another.
fn find_names<const N: usize>(
    btf: &mut BufReader<impl Read>,
    strings_len: u32,
    names: [&str; N],
) -> Option<[Vec<u32>; N]> {
    let mut found = [const { Vec::new() }; N];
    let (mut at, mut string) = (0, Vec::new());
    while at < strings_len {
        string.clear();
        at += u32::try_from(btf.read_until(0, &mut string).ok()?).ok()?;
        let string = string.strip_suffix(&[0])?;
        for (name, places) in names.iter().zip(&mut found) {
            if string.ends_with(name.as_bytes()) {
                places.push(at - 1 - u32::try_from(name.len()).ok()?);
            }
        }
    }
    Some(found)
}

/// The offset in bytes of the member with one of these names, among the next `count` of a struct.
fn offset_of(btf: &mut BufReader<impl Read>, count: u32, names: &[u32]) -> Option<u32> {
    for _ in 0..count {
        let member: [u8; ENTRY_LEN as usize] = read(btf)?;
        if names.contains(&word(&member, 0)) {
            // With bit-fields in the struct the high byte is a field's width.
            let bits = word(&member, 8) & 0x00ff_ffff;
            return (bits % 8 == 0).then_some(bits / 8);
        }
    }
    None
}

/// How many bytes follow a type of this kind; none for a kind that is not known here.
const fn trailer_len(kind: u32, count: u32) -> Option<u32> {
    Some(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Struct, union, section, 64-bit enum.
        4 | 5 | 15 | 19 => 12 * count,
        // Enum, function prototype.
        6 | 13 => 8 * count,
        _ => return None,
    })
}

fn read<const N: usize>(btf: &mut BufReader<impl Read>) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    btf.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// The number at this place, in the machine's byte order.
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn offset(btf: &[u8], structure: &str, member: &str) -> Option<u32> {
        member_offset(Cursor::new(btf), structure, member)
    }

    /// An integer, a struct `other` of one member, and `sk_buff` of two.
    fn small() -> Vec<u8> {
        let strings = b"\0int\0other\0sk_buff\0next\0_nfct\0";
        let at = |name: &str| {
            let wanted = [&[0], name.as_bytes(), &[0]].concat();
            let found = strings.windows(wanted.len()).position(|window| window == wanted).expect("a name");
            u32::try_from(found + 1).expect("small")
        };
        let info = |kind: u32, count: u32| kind << 24 | count;
        let types = [
            vec![at("int"), info(1, 0), 4, 32],
            vec![at("other"), info(4, 1), 8, at("_nfct"), 1, 0],
            vec![at("sk_buff"), info(4, 2) | 1 << 31, 16, at("next"), 1, 0, at("_nfct"), 1, 64],
        ]
        .concat();
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_ne_bytes).collect();
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("small");
        let mut btf = MAGIC.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        for word in [24, 0, len(&types), len(&types), len(strings)] {
            btf.extend(word.to_ne_bytes());
        }
        [btf, types, strings.to_vec()].concat()
    }

    #[test]
    fn a_member_is_found_in_its_struct() {
        assert_eq!(offset(&small(), "sk_buff", "_nfct"), Some(8));
        assert_eq!(offset(&small(), "sk_buff", "nfct"), None);
        assert_eq!(offset(&small(), "sk_buf", "_nfct"), None);
    }

    #[test]
    fn what_is_cut_or_unknown_is_no_answer() {
        let btf = small();
        for len in 0..btf.len() {
            assert_eq!(offset(&btf[..len], "sk_buff", "_nfct"), None, "{len} bytes");
        }
        let mut unknown = btf.clone();
        unknown[24 + 7] = 31;
        assert_eq!(offset(&unknown, "sk_buff", "_nfct"), None);
    }
}
