//! The reasons for which a backend cannot serve.

use std::net::IpAddr;

use flannel_iface::End;

/// Refuses an end behind a NAT, for a backend by which packets go to a node's own address.
pub fn require_own_address(backend: &'static str, end: &End) -> Result<(), BackendError> {
    let End { addr, public, .. } = *end;
    if public == addr {
        Ok(())
    } else {
        Err(BackendError::BehindNat {
            backend,
            public,
            addr,
        })
    }
}

/// Reasons a backend cannot serve from an external interface. Each needs a change by the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// Packets to a node go to an address it has, not to a NAT's.
    #[error(
        "{backend} needs a node's own address, and {public} is not the address of the external \
         interface, {addr}: use \
         that one as --public-ip (--public-ipv6), or the backend vxlan"
    )]
    BehindNat {
        /// The backend.
        backend: &'static str,
        /// The address published to peers.
        public: IpAddr,
        /// The interface's.
        addr: IpAddr,
    },
    /// IPv6 needs packets of 1280 bytes.
    #[error(
        "an external MTU of {external} bytes leaves {left} for IPv6 pods, and IPv6 needs {}: raise \
         the MTU, or switch \
         EnableIPv6 off",
        IPV6_MIN_MTU
    )]
    TooSmallForIpv6 {
        /// The external interface's, or what the network configuration makes of it.
        external: u32,
        /// The MTU left for pods, in bytes.
        left: u32,
    },
}

/// Below, the kernel switches IPv6 off on a device ([RFC 8200, section
/// 5](https://www.rfc-editor.org/rfc/rfc8200#section-5); `addrconf_notify()` in
/// [net/ipv6/addrconf.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/addrconf.c)).
pub const IPV6_MIN_MTU: u32 = 1280;
