//! Puts the BPF object where `datapath::kernel_objects` embeds it.
//!
//! `FLANNEL_BPF_OBJECT` names an object that was built (`cargo xtask build` sets it, packagers
//! may). Without it an empty file, the stub, stands in, so that check, clippy and doc work without
//! the BPF toolchain; the loader refuses it.

use std::{env, fs, io::Write as _, path::PathBuf};

use flate2::{Compression, write::ZlibEncoder};
use object::{
    build::{
        Error,
        elf::{Builder, SectionData},
    },
    elf::SHT_STRTAB,
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLANNEL_BPF_OBJECT");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("flannel-ebpf.o.z");
    let object = match env::var_os("FLANNEL_BPF_OBJECT").filter(|path| !path.is_empty()) {
        None => Vec::new(),
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            let built =
                fs::read(&path).unwrap_or_else(|error| panic!("FLANNEL_BPF_OBJECT={}: {error}", path.display()));
            let needed =
                without_dwarf(&built).unwrap_or_else(|error| panic!("FLANNEL_BPF_OBJECT={}: {error}", path.display()));
            compressed(&needed)
        }
    };
    fs::write(&out, object).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

/// The object without its DWARF: most of the file, which the loader would read with all its
/// relocations, for nothing. Types, functions and lines for the kernel are in .BTF and .BTF.ext,
/// which stay.
fn without_dwarf(object: &[u8]) -> Result<Vec<u8>, Error> {
    let mut elf = Builder::read(object)?;
    for section in &mut elf.sections {
        section.delete = [b".debug_".as_slice(), b".rel.debug_"].iter().any(|name| section.name.starts_with(name));
    }
    elf.delete_orphans();
    // LLVM keeps the names of sections among those of symbols, and the writer wants a table of
    // their own.
    if !elf.sections.iter().any(|section| matches!(section.data, SectionData::SectionString)) {
        let names = elf.sections.add();
        (names.name, names.sh_type, names.sh_addralign) = (b".shstrtab".as_slice().into(), SHT_STRTAB, 1);
        names.data = SectionData::SectionString;
    }
    let mut stripped = Vec::new();
    elf.write(&mut stripped)?;
    Ok(stripped)
}

/// The loader needs the object once: compressed, it is in memory no longer than that.
fn compressed(object: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(object).and_then(|()| encoder.finish()).expect("memory takes everything")
}
