//! Takes the debug information for debuggers out of the BPF object.

use object::{
    build::{
        Error,
        elf::{Builder, SectionData},
    },
    elf::SHT_STRTAB,
};

/// The object without its DWARF: most of the file, which the loader would read with all its
/// relocations, for nothing. Types, functions and lines for the kernel are in .BTF and .BTF.ext,
/// which stay.
pub(crate) fn without_dwarf(object: &[u8]) -> Result<Vec<u8>, Error> {
    let mut elf = Builder::read(object)?;
    for section in &mut elf.sections {
        section.delete = [b".debug_".as_slice(), b".rel.debug_"]
            .iter()
            .any(|name| section.name.starts_with(name));
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
