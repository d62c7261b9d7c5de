//! The external interface, the tunnel devices, and what is set on the host.

use serde::{Deserialize, Serialize};

/// The external interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its address; the IPv4 one if there are two.
    pub address: String,
    /// The address peers send to, of the same family.
    pub public_ip: String,
    /// Its IPv6 address, where IPv6 is on.
    pub ipv6_address: Option<String>,
    /// The address peers send IPv6 to.
    pub public_ipv6: Option<String>,
}

/// A tunnel device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// Its Ethernet address, the `VtepMAC` of our lease; `-` if it has none.
    pub mac: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The family of the addresses it carries.
    pub family: String,
    /// It takes outer UDP over IPv6 without a checksum, which is how the programs of peers send it.
    pub zero_checksum_v6: bool,
    /// A WireGuard device's own settings; absent for a device of another kind.
    #[serde(default)]
    pub wireguard: Option<WireguardStatus>,
}

/// A WireGuard device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WireguardStatus {
    /// Our public key.
    pub public_key: String,
    /// Its UDP port.
    pub port: u16,
    /// The party that encrypts: `kernel` or `process`.
    pub implementation: String,
}

/// Checksum offload of a tunnel device, in the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChecksumOffloadStatus {
    /// The tunnel device.
    pub device: String,
    /// The setting: `auto`, `on` or `off`.
    pub setting: String,
    /// True if inner checksums are left to the network card; absent if that is not known.
    pub on: Option<bool>,
    /// The reason why they are not, or why that is not known.
    pub reason: Option<String>,
}

/// A sysctl with a value that keeps packets from pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SysctlProblem {
    /// Its name, as `sysctl` takes it.
    pub sysctl: String,
    /// Its value.
    pub value: u32,
    /// The value that it needs.
    pub needed: u32,
    /// The effect of its value, and the reason why the agent did not set it, in words.
    pub text: String,
}
