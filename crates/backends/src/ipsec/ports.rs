//! The UDP ports of IKE: charon listens on all addresses, so one other socket is in its way.

use flannel_host::port_holder::{PortKind, port_holder};

use super::IpsecError;

/// IKE, and IKE through a NAT or with UDP encapsulation.
const PORTS: [u16; 2] = [500, 4500];

/// Fails if another process has one of the ports.
pub(super) fn check() -> Result<(), IpsecError> {
    let taken = PORTS
        .into_iter()
        .find_map(|port| Some((port, port_holder(PortKind::Udp, port)?)));
    taken.map_or(Ok(()), |(port, owner)| {
        Err(IpsecError::PortTaken { port, owner })
    })
}
