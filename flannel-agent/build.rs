//! Puts the BPF object where `datapath::object` embeds it.
//!
//! `FLANNEL_BPF_OBJECT` names an object that was built (`cargo xtask build` sets it, packagers may). Without it an empty
//! file, the stub, stands in, so that check, clippy and doc work without the BPF toolchain; the loader refuses it.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=FLANNEL_BPF_OBJECT");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("flannel-ebpf.o");
    let object = match env::var_os("FLANNEL_BPF_OBJECT").filter(|path| !path.is_empty()) {
        None => Vec::new(),
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path).unwrap_or_else(|error| panic!("FLANNEL_BPF_OBJECT={}: {error}", path.display()))
        }
    };
    fs::write(&out, object).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}
