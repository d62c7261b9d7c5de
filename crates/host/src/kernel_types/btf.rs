//! A reader of the kernel's type information (BTF).
//!
//! Only what the offsets of members and the values of enumerators take: the names are found among
//! the strings, then types are walked in order, their sizes known by kind ([BPF Type
//! Format](https://docs.kernel.org/bpf/btf.html)). The kernel's BTF is some six megabytes: it is
//! read once, through a small buffer, and is never in memory as a whole. A file of sysfs gives a
//! page at a time, so each further reading costs 10 ms.

use std::io::{BufRead as _, BufReader, Read, Seek, SeekFrom};

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
/// A member of an enum: name, value.
const ENUMERATOR_LEN: usize = 8;
/// A type: name, kind and length, size or type. A member of a struct: name, type, offset.
const ENTRY_LEN: u32 = 12;
/// The name of what has none.
const ANONYMOUS: u32 = 0;

/// An offset in bytes, or a value; `None` for what cannot be read.
pub(super) type Found = Option<u32>;

/// A kernel's type information.
pub(super) struct Btf<R> {
    file: BufReader<R>,
    types: Section,
    strings: Section,
    /// The beginning of each type in the file, by its number; the first one has number 1.
    places: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Section {
    at: u64,
    len: u32,
}

/// A struct or union: its name, by its place among the strings, and its members.
struct Structure {
    name: u32,
    members: Vec<Member>,
}

/// The beginning of a type: its name, its kind, and the number of its members.
struct Header {
    name: u32,
    kind: u32,
    count: u32,
}

struct Member {
    name: u32,
    of: u32,
    bits: u32,
}

impl<R: Read + Seek> Btf<R> {
    pub(super) fn open(file: R) -> Option<Self> {
        let mut file = BufReader::new(file);
        let header: [u8; HEADER_LEN] = read(&mut file)?;
        if u16::from_ne_bytes([header[0], header[1]]) != MAGIC {
            return None;
        }
        let start = u64::from(word(&header, 4));
        let section = |at, len| Section {
            at: start + u64::from(word(&header, at)),
            len: word(&header, len),
        };
        Some(Self {
            types: section(8, 12),
            strings: section(16, 20),
            places: Vec::new(),
            file,
        })
    }

    /// The offsets in bytes of these members of these structs, and the values of the members of
    /// enums with these names, which no others have.
    pub(super) fn look_up(
        &mut self,
        wanted: &[(&str, &str)],
        enumerators: &[&str],
    ) -> Option<(Vec<Found>, Vec<Found>)> {
        let both = wanted
            .iter()
            .flat_map(|(structure, member)| [*structure, *member]);
        let names =
            self.find_names(&both.chain(enumerators.iter().copied()).collect::<Vec<_>>())?;
        let (of_members, of_enumerators) = names.split_at(2 * wanted.len());
        let (structures, values) = self.walk(
            |name| {
                of_members
                    .iter()
                    .step_by(2)
                    .any(|places| places.contains(&name))
            },
            &of_enumerators.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        )?;
        let offsets = of_members.chunks_exact(2).map(|names| {
            let structure = structures
                .iter()
                .find(|found| names[0].contains(&found.name));
            let bits = structure.and_then(|structure| self.offset(structure, &names[1]));
            bits.filter(|bits| bits % 8 == 0).map(|bits| bits / 8)
        });
        Some((offsets.collect(), values))
    }

    /// The offset in bits of the member with one of these names, also within members that have none
    /// themselves.
    fn offset(&mut self, structure: &Structure, names: &[u32]) -> Option<u32> {
        if let Some(member) = structure
            .members
            .iter()
            .find(|member| names.contains(&member.name))
        {
            return Some(member.bits);
        }
        structure
            .members
            .iter()
            .filter(|member| member.name == ANONYMOUS)
            .find_map(|member| {
                let inner = self.structure(member.of)?;
                Some(member.bits + self.offset(&inner, names)?)
            })
    }

    /// Returns the offsets of each name in the string section, by itself and as the end of another
    /// string.
    fn find_names(&mut self, names: &[&str]) -> Option<Vec<Vec<u32>>> {
        self.file.seek(SeekFrom::Start(self.strings.at)).ok()?;
        let mut by_end: [Vec<usize>; 256] = [const { Vec::new() }; 256];
        for (number, name) in names.iter().enumerate() {
            by_end[usize::from(*name.as_bytes().last()?)].push(number);
        }
        let mut found = vec![Vec::new(); names.len()];
        let (mut at, mut string) = (0, Vec::new());
        while at < self.strings.len {
            string.clear();
            at += u32::try_from(self.file.read_until(0, &mut string).ok()?).ok()?;
            let string = string.strip_suffix(&[0])?;
            let Some(end) = string.last() else { continue };
            for &number in &by_end[usize::from(*end)] {
                if string.ends_with(names[number].as_bytes()) {
                    found[number].push(at - 1 - u32::try_from(names[number].len()).ok()?);
                }
            }
        }
        Some(found)
    }

    /// Walks through all types and notes their places. Returns the structs and unions whose name is
    /// wanted, and the value of the first member of an enum with each of these names.
    fn walk(
        &mut self,
        is_structure: impl Fn(u32) -> bool,
        enumerators: &[&[u32]],
    ) -> Option<(Vec<Structure>, Vec<Found>)> {
        self.file.seek(SeekFrom::Start(self.types.at)).ok()?;
        let (mut left, mut structures, mut values) =
            (self.types.len, Vec::new(), vec![None; enumerators.len()]);
        while left > 0 {
            self.places
                .push(self.types.at + u64::from(self.types.len - left));
            let Header { name, kind, count } = self.header()?;
            let trailer = trailer_len(kind, count)?;
            match kind {
                KIND_STRUCT | KIND_UNION if is_structure(name) => {
                    structures.push(Structure {
                        name,
                        members: self.members(count)?,
                    });
                }
                KIND_ENUM => self.note_values(count, enumerators, &mut values)?,
                _ => self.file.seek_relative(trailer.into()).ok()?,
            }
            left = left.checked_sub(ENTRY_LEN + trailer)?;
        }
        Some((structures, values))
    }

    /// Reads the members of an enum.
    fn note_values(&mut self, count: u32, names: &[&[u32]], values: &mut [Found]) -> Option<()> {
        for _ in 0..count {
            let member: [u8; ENUMERATOR_LEN] = read(&mut self.file)?;
            let name = word(&member, 0);
            if let Some(wanted) = names.iter().position(|places| places.contains(&name)) {
                values[wanted].get_or_insert(word(&member, 4));
            }
        }
        Some(())
    }

    /// The struct or union with this number.
    fn structure(&mut self, number: u32) -> Option<Structure> {
        let place = *self
            .places
            .get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        self.file.seek(SeekFrom::Start(place)).ok()?;
        let Header { name, kind, count } = self.header()?;
        matches!(kind, KIND_STRUCT | KIND_UNION).then_some(())?;
        Some(Structure {
            name,
            members: self.members(count)?,
        })
    }

    fn header(&mut self) -> Option<Header> {
        let entry: [u8; ENTRY_LEN as usize] = read(&mut self.file)?;
        let info = word(&entry, 4);
        Some(Header {
            name: word(&entry, 0),
            kind: info >> 24 & 0x1f,
            count: info & 0xffff,
        })
    }

    fn members(&mut self, count: u32) -> Option<Vec<Member>> {
        let member = |_| {
            let member: [u8; ENTRY_LEN as usize] = read(&mut self.file)?;
            // With bit-fields in the struct the high byte is a field's width.
            Some(Member {
                name: word(&member, 0),
                of: word(&member, 4),
                bits: word(&member, 8) & 0x00ff_ffff,
            })
        };
        (0..count).map(member).collect()
    }
}

/// Returns the number of bytes that follow a type of this kind; `None` for an unknown kind.
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
pub(super) mod tests {
    use std::io::Cursor;

    use super::*;

    fn offset(btf: &[u8], structure: &str, member: &str) -> Option<u32> {
        Btf::open(Cursor::new(btf))?
            .look_up(&[(structure, member)], &[])?
            .0[0]
    }

    /// An integer, a struct `other` of one member, and `sk_buff` of three, of which the second is a
    /// union without a name.
    pub(crate) fn small() -> Vec<u8> {
        let strings = b"\0int\0other\0sk_buff\0next\0_nfct\0dev\0";
        let at = |name: &str| {
            let wanted = [&[0], name.as_bytes(), &[0]].concat();
            let found = strings
                .windows(wanted.len())
                .position(|window| window == wanted)
                .expect("a name");
            u32::try_from(found + 1).expect("small")
        };
        let info = |kind: u32, count: u32| kind << 24 | count;
        let types = [
            vec![at("int"), info(1, 0), 4, 32],
            vec![at("other"), info(4, 1), 8, at("_nfct"), 1, 0],
            vec![
                at("sk_buff"),
                info(4, 3) | 1 << 31,
                16,
                at("next"),
                1,
                0,
                0,
                4,
                32,
                at("_nfct"),
                1,
                64,
            ],
            vec![0, info(5, 2), 4, at("int"), 1, 0, at("dev"), 1, 8],
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
        assert_eq!(offset(&small(), "sk_buff", "nfc"), None);
        assert_eq!(offset(&small(), "sk_buf", "_nfct"), None);
    }

    #[test]
    fn a_member_of_a_member_without_a_name_is_a_member() {
        assert_eq!(offset(&small(), "sk_buff", "dev"), Some(5));
        assert_eq!(offset(&small(), "other", "dev"), None);
    }

    #[test]
    fn a_member_of_an_enum_is_found_by_its_name() {
        let mut btf = small();
        let names = |btf: &[u8]| {
            Btf::open(Cursor::new(btf.to_vec()))?
                .look_up(&[], &["dev"])?
                .1[0]
        };
        assert_eq!(names(&btf), None);
        // The union becomes an enum: its two members of three words each are the three members of
        // two words.
        let union = btf.len() - b"\0int\0other\0sk_buff\0next\0_nfct\0dev\0".len() - 36;
        btf[union + 4..union + 8].copy_from_slice(&(KIND_ENUM << 24 | 3).to_ne_bytes());
        let dev = word::<4>(
            btf[union + 24..union + 28].try_into().expect("four bytes"),
            0,
        );
        btf[union + 20..union + 24].copy_from_slice(&dev.to_ne_bytes());
        btf[union + 24..union + 28].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(names(&btf), Some(7));
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
