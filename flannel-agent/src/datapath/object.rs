//! The BPF object inside this executable.

use crate::datapath::DatapathError;

/// The object's bytes, aligned as the parser needs them; empty in a build without the BPF toolchain.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flannel-ebpf.o"));

/// The object, unless this build carries the stub.
pub(super) fn bytes() -> Result<&'static [u8], DatapathError> {
    if OBJECT.is_empty() { Err(DatapathError::Stub) } else { Ok(OBJECT) }
}
