//! Puts the BPF object where `object` embeds it.
//!
//! `FLANNEL_BPF_OBJECT` names an object that was built (`cargo xtask build` sets it; packagers may,
//! without DWARF and numbers of lines, which are most of the file that the loader reads).
//! Without it an empty file, the stub, stands in, so that check, clippy and doc work without the
//! BPF toolchain; the loader refuses it.

use std::{env, fs, io::Write as _, path::PathBuf};

use flate2::{Compression, write::ZlibEncoder};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLANNEL_BPF_OBJECT");
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("flannel-ebpf.o.z");
    let object = match env::var_os("FLANNEL_BPF_OBJECT").filter(|path| !path.is_empty()) {
        None => Vec::new(),
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            let built = fs::read(&path)
                .unwrap_or_else(|error| panic!("FLANNEL_BPF_OBJECT={}: {error}", path.display()));
            compressed(&built)
        }
    };
    fs::write(&out, object).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

/// The loader needs the object once: compressed, it is in memory no longer than that.
fn compressed(object: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder
        .write_all(object)
        .and_then(|()| encoder.finish())
        .expect("memory takes everything")
}
