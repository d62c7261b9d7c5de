//! Takes out of the BPF object what the kernel does not need.

use anyhow::Context as _;
use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// Fields of the header of .BTF.ext, little endian, in words: the header's length, and offset
/// (behind the header) and length of the lines.
const HEADER_LEN: usize = 1;
const LINES: usize = 4;
const LINES_LEN: usize = 5;
/// Offsets of the other two parts.
const PARTS: [usize; 2] = [2, 6];

/// The object without its DWARF and without the numbers of its lines: most of the file, which the
/// loader would read with all its relocations. The kernel would keep 24 bytes for each line of each
/// program, to name them where a verifier refuses a program. Types and functions stay.
pub(crate) fn without_debug_information(object: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut elf = Builder::read(object)?;
    for section in &mut elf.sections {
        section.delete = [b".debug_".as_slice(), b".rel.debug_", b".rel.BTF.ext"]
            .iter()
            .any(|name| section.name.starts_with(name));
        if section.name.as_slice() == b".BTF.ext"
            && let SectionData::Data(bytes) = &mut section.data
        {
            *bytes = without_lines(bytes)?.into();
        }
    }
    elf.delete_orphans();
    // LLVM keeps the names of sections among those of symbols, and the writer wants a table of
    // their own.
    if !elf
        .sections
        .iter()
        .any(|section| matches!(section.data, SectionData::SectionString))
    {
        let names = elf.sections.add();
        (names.name, names.sh_type, names.sh_addralign) =
            (b".shstrtab".as_slice().into(), SHT_STRTAB, 1);
        names.data = SectionData::SectionString;
    }
    let mut stripped = Vec::new();
    elf.write(&mut stripped)?;
    Ok(stripped)
}

/// The content of .BTF.ext without the numbers of lines.
fn without_lines(section: &[u8]) -> anyhow::Result<Vec<u8>> {
    let word = |number: usize| {
        let bytes = section.get(4 * number..4 * number + 4);
        let bytes = bytes.context(".BTF.ext is too short for its header")?;
        anyhow::Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    let (header, lines, len) = (word(HEADER_LEN)?, word(LINES)?, word(LINES_LEN)?);
    let at = (header + lines) as usize;
    let mut kept = section.to_vec();
    anyhow::ensure!(
        at + len as usize <= kept.len(),
        "lines of .BTF.ext lie behind it"
    );
    kept.drain(at..at + len as usize);
    let mut set = |number: usize, value: u32| {
        kept[4 * number..4 * number + 4].copy_from_slice(&value.to_le_bytes());
    };
    set(LINES_LEN, 0);
    for part in PARTS {
        // Older headers end before the last part.
        if 4 * part < header as usize && word(part)? > lines {
            set(part, word(part)? - len);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_lines_go_and_all_other_parts_of_btf_ext_stay() {
        let header = |lines: u32, relocations: u32| -> Vec<u8> {
            let words = [0x0001_eb9f, 32, 0, 4, 4, lines, relocations, 4];
            words
                .iter()
                .flat_map(|word: &u32| word.to_le_bytes())
                .collect()
        };
        let with = [
            header(8, 12),
            b"func".into(),
            b"lineline".into(),
            b"relo".into(),
        ]
        .concat();
        let without = [header(0, 4), b"func".into(), b"relo".into()].concat();
        assert_eq!(without_lines(&with).expect("a section"), without);
        assert_eq!(without_lines(&without).expect("a section"), without);
        assert!(without_lines(&with[..40]).is_err(), "cut off");
        assert!(without_lines(b"too short").is_err());
    }
}
