//! Messages to the kernel's netfilter subsystems, as bytes (linux/netfilter/nfnetlink.h).

use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use nix::{
    libc::NLM_F_REQUEST,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
    },
};

/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// A socket of the network namespace the thread is in.
pub(crate) fn open() -> Result<OwnedFd> {
    let protocol = SockProtocol::NetlinkNetFilter;
    Ok(socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )?)
}

/// One attribute.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("small");
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute of attributes.
pub(crate) fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &attributes.concat())
}

/// Sends a request about one address family, to resource 0.
pub(crate) fn send(
    socket: &OwnedFd,
    kind: u16,
    flags: i32,
    family: u8,
    attributes: &[u8],
) -> Result<()> {
    let length = u32::try_from(20 + attributes.len()).expect("small");
    let flags = u16::try_from(flags | NLM_F_REQUEST).expect("flags of netlink");
    let header = [
        &length.to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &[0; 8],
        &[family, 0, 0, 0],
    ]
    .concat();
    let message = [&header, attributes].concat();
    sendto(
        socket.as_raw_fd(),
        &message,
        &NetlinkAddr::new(0, 0),
        MsgFlags::empty(),
    )
    .context("to netfilter")?;
    Ok(())
}
