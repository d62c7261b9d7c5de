//! Requests to netfilter's subsystems ([include/uapi/linux/netfilter/nfnetlink.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter/nfnetlink.h)) as
//! bytes.

/// Bytes of `struct nlmsghdr` and of `struct nfgenmsg`.
pub(crate) const MESSAGE_HEADER: usize = 16;
pub(crate) const FAMILY_HEADER: usize = 4;

/// A request of this type and address family, with these attributes.
pub(crate) fn request(
    kind: u16,
    flags: u16,
    sequence: u32,
    family: u8,
    attributes: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; MESSAGE_HEADER];
    bytes.extend([family, 0, 0, 0]);
    bytes.extend(attributes);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}
