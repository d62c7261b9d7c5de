//! The process behind a TUN device, as carrier of packets.

use std::net::IpAddr;

use flannel_backend_api::{Carrier, CarrierState, CarryingDevice, MissingPart};
use flannel_netlink::Link;
use ipnet::IpNet;

/// The part that findings name.
pub(crate) const PART: &str = "process";
/// The kind of link of a TUN device.
const TUN: &str = "tun";

/// A TUN device as it was read.
pub(crate) struct CarryingTun {
    name: String,
    /// True if a process has it open.
    is_served: bool,
}

impl CarryingTun {
    /// Reads the device; none if it is of another kind.
    pub(crate) fn read(link: &Link) -> Option<Self> {
        (link.kind.as_deref() == Some(TUN)).then(|| Self {
            name: link.name.clone(),
            is_served: link.running,
        })
    }
}

impl CarryingDevice for CarryingTun {
    fn carrier(&self, _destination: IpAddr) -> Carrier {
        let device = &self.name;
        let (state, text) = if self.is_served {
            (
                CarrierState::Carries,
                format!("a process carries the packets of {device}"),
            )
        } else {
            (
                CarrierState::Repairable,
                format!("no process has {device} open, so its packets end there"),
            )
        };
        Carrier {
            part: PART,
            state,
            text,
        }
    }

    fn missing(&self, _subnet: IpNet) -> Option<MissingPart> {
        (!self.is_served).then(|| MissingPart {
            object: self.name.clone(),
            found: Some("no process has it open".to_owned()),
            wanted: "a process",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_carries_while_a_process_has_it_open() {
        let link = |running| Link {
            kind: Some(TUN.to_owned()),
            running,
            ..Link::ethernet(7, "flannel0", 1472)
        };
        let read = |link: &Link| CarryingTun::read(link).expect("a TUN device");
        let subnet = "10.244.2.0/24".parse().expect("a subnet");
        let (served, unserved) = (read(&link(true)), read(&link(false)));
        let state = |device: &CarryingTun| device.carrier("10.244.2.9".parse().expect("it")).state;
        assert_eq!(state(&served), CarrierState::Carries);
        assert_eq!(state(&unserved), CarrierState::Repairable);
        assert_eq!(served.missing(subnet), None);
        assert!(unserved.missing(subnet).is_some());
        assert!(CarryingTun::read(&Link::ethernet(7, "eth0", 1500)).is_none());
    }
}
