//! The BPF object inside this executable: compressed (`build.rs`), and without its DWARF (xtask).

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use crate::DatapathError;

/// The compressed object; empty in a build without the BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flannel-ebpf.o.z"));

/// The object as it is in this executable, for a digest of it.
pub(crate) fn compressed() -> &'static [u8] {
    OBJECT
}

/// The object, unless this build carries the stub. To be dropped after the load.
pub(crate) fn bytes() -> Result<Vec<u8>, DatapathError> {
    if OBJECT.is_empty() {
        return Err(DatapathError::Stub);
    }
    let mut object = Vec::new();
    ZlibDecoder::new(OBJECT)
        .read_to_end(&mut object)
        .expect("the build compressed it");
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::{OBJECT, bytes};

    /// The loader reads all there is, and takes memory for it.
    #[test]
    fn the_kernel_gets_what_it_needs_and_nothing_for_debuggers() {
        let object = bytes().unwrap_or_default();
        let has = |name: &[u8]| object.windows(name.len()).any(|window| window == name);
        assert!(!has(b".debug_"));
        assert_eq!(has(b".BTF.ext"), !OBJECT.is_empty());
    }
}
