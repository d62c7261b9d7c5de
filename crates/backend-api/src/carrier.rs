//! The findings about what is behind a route: the peers of a WireGuard device, the process behind a
//! TUN device, the policies of IPsec. A packet that the route sends there is lost if it is gone.

use std::net::IpAddr;

use ipnet::IpNet;

/// The finding about what carries the packets to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The part that carries them, such as `wireguard`. The names are an interface.
    pub part: &'static str,
    /// The judgement.
    pub state: CarrierState,
    /// The finding, and the remedy where a running agent does not repair it.
    pub text: String,
}

/// The judgement on a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierState {
    /// It does.
    Carries,
    /// There is no sign that it does; packets may pass all the same.
    Doubtful,
    /// That cannot be read.
    Unknown,
    /// It does not.
    Lost,
    /// It does not, and a running agent repairs that.
    Repairable,
}

/// A device behind which something carries the packets, as it was read.
pub trait CarryingDevice {
    /// Returns the finding about the packets to an address.
    fn carrier(&self, destination: IpAddr) -> Carrier;

    /// Returns what is missing for a peer with this subnet.
    fn missing(&self, subnet: IpNet) -> Option<MissingPart>;
}

/// A part behind a device that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPart {
    /// The device, or the part of it.
    pub object: String,
    /// The state that was found, in words; none if there is nothing.
    pub found: Option<String>,
    /// The part that should be there, in words.
    pub wanted: &'static str,
}
