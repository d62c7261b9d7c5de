//! Where the running kernel keeps a member of one of its structs, by its own type information (BTF). Pure but for the
//! file it reads.
//!
//! Only what that takes: types are walked in order, their sizes known by kind, until the struct is found
//! (Documentation/bpf/btf.rst).

use std::fs;

/// The kernel's BTF.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
/// Name, kind and length, and size or type.
const TYPE_LEN: usize = 12;

/// The offset in bytes of `skb->_nfct`; none where the kernel has no BTF or no conntrack.
pub(super) fn nfct_offset() -> Option<u32> {
    member_offset(&fs::read(VMLINUX).ok()?, "sk_buff", "_nfct")
}

/// The offset in bytes of a direct member of a struct.
fn member_offset(btf: &[u8], structure: &str, member: &str) -> Option<u32> {
    let header = Words(btf);
    if header.half(0)? != MAGIC {
        return None;
    }
    let at = header.word(4)? as usize;
    let section = |offset: usize, len: usize| {
        let start = at.checked_add(header.word(offset)? as usize)?;
        btf.get(start..start.checked_add(header.word(len)? as usize)?)
    };
    let (types, strings) = (section(8, 12)?, section(16, 20)?);
    let named = |offset: u32, name: &str| {
        strings
            .get(offset as usize..)
            .is_some_and(|rest| rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)))
    };
    let mut at = 0;
    while at < types.len() {
        let entry = Words(types.get(at..)?);
        let info = entry.word(4)?;
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        if kind == KIND_STRUCT && named(entry.word(0)?, structure) {
            let place = (0..count)
                .find(|place| entry.word(TYPE_LEN + place * TYPE_LEN).is_some_and(|offset| named(offset, member)))?;
            // With bit-fields in the struct the high byte is a field's width.
            let bits = entry.word(TYPE_LEN + place * TYPE_LEN + 8)? & 0x00ff_ffff;
            return (bits % 8 == 0).then_some(bits / 8);
        }
        at += TYPE_LEN + trailer_len(kind, count)?;
    }
    None
}

/// How many bytes follow a type of this kind; none for a kind that is not known here.
const fn trailer_len(kind: u32, count: usize) -> Option<usize> {
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

/// Numbers in the machine's byte order.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn half(self, at: usize) -> Option<u16> {
        self.0.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
    }

    fn word(self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(member_offset(&small(), "sk_buff", "_nfct"), Some(8));
        assert_eq!(member_offset(&small(), "sk_buff", "nfct"), None);
        assert_eq!(member_offset(&small(), "sk_buf", "_nfct"), None);
    }

    #[test]
    fn what_is_cut_or_unknown_is_no_answer() {
        let btf = small();
        for len in 0..btf.len() {
            assert_eq!(member_offset(&btf[..len], "sk_buff", "_nfct"), None, "{len} bytes");
        }
        let mut unknown = btf.clone();
        unknown[24 + 7] = 31;
        assert_eq!(member_offset(&unknown, "sk_buff", "_nfct"), None);
    }
}
