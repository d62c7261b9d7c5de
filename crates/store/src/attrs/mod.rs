//! The value of a lease: where its node is reached, and what the backend needs to know.
//!
//! Written exactly as flannel writes it (field order, what is omitted); read without regard to the
//! case of keys, unknown ones ignored.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use flannel_common::packet::addr::Mac;
use flannel_host::{
    excerpt::{excerpt, message_excerpt},
    wireguard_key::PublicKey,
};
use serde::{Serialize, Serializer, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::config::{BackendKind, gojson::Fields};

/// The attributes of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeaseAttrs {
    /// The address at which the node is reached by IPv4. `0.0.0.0` in JSON when unset.
    #[serde(rename = "PublicIP", serialize_with = "or_unspecified")]
    pub public_ip: Option<Ipv4Addr>,
    /// The address at which the node is reached by IPv6. `null` in JSON when unset.
    #[serde(rename = "PublicIPv6")]
    pub public_ipv6: Option<Ipv6Addr>,
    /// The backend's name, empty for some.
    #[serde(rename = "BackendType", skip_serializing_if = "str::is_empty")]
    pub backend_type: Cow<'static, str>,
    /// The data the backend publishes for IPv4.
    #[serde(rename = "BackendData", skip_serializing_if = "Option::is_none")]
    pub backend_data: Option<RawJson>,
    /// The data the backend publishes for IPv6.
    #[serde(rename = "BackendV6Data", skip_serializing_if = "Option::is_none")]
    pub backend_v6_data: Option<RawJson>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "the signature serde asks for"
)]
fn or_unspecified<S: Serializer>(
    address: &Option<Ipv4Addr>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    address
        .unwrap_or(Ipv4Addr::UNSPECIFIED)
        .serialize(serializer)
}

/// A JSON value as its text.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// The JSON text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The JSON of a text.
    pub fn of_text(text: &str) -> Self {
        Self(to_raw_value(text).expect("a text always serialises"))
    }

    /// The text, where the value is one.
    pub fn to_text(&self) -> Result<String, BadAttrs> {
        serde_json::from_str(self.text()).map_err(|_mismatch| BadAttrs::Field {
            key: "the backend data",
            value: excerpt(self.text()).to_string(),
            expected: "a text",
        })
    }

    /// Reads a text that is one JSON value; `what` names it in the error.
    pub fn parse(what: &'static str, text: &str) -> Result<Self, BadAttrs> {
        let broken = |error: serde_json::Error| BadAttrs::NotJson {
            what,
            problem: message_excerpt(&error),
        };
        serde_json::from_str::<&RawValue>(text)
            .map(|raw| Self(raw.to_owned()))
            .map_err(broken)
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for RawJson {}

/// A lease's value, or the backend's part of it, that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAttrs {
    /// Not a JSON object.
    #[error("{what} is not a JSON object: {problem}")]
    Json {
        /// The lease's value, or which part of it.
        what: &'static str,
        /// The JSON parser's message.
        problem: String,
    },
    /// Not JSON at all.
    #[error("{what} is not JSON: {problem}")]
    NotJson {
        /// The annotation.
        what: &'static str,
        /// The JSON parser's message.
        problem: String,
    },
    /// A field of the wrong type.
    #[error("{key} is {value}, expected {expected}")]
    Field {
        /// The key.
        key: &'static str,
        /// The JSON text of its value, cut.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
}

/// The name of a backend. Leases by the thousands have the same: those of known backends take no
/// memory.
pub(crate) fn backend_type(name: String) -> Cow<'static, str> {
    BackendKind::of_lease(&name).map_or(Cow::Owned(name), |kind| {
        Cow::Borrowed(kind.properties().lease_name)
    })
}

fn parse_object(what: &'static str, text: &[u8]) -> Result<Fields, BadAttrs> {
    let json = |problem: String| BadAttrs::Json { what, problem };
    let text = str::from_utf8(text).map_err(|error| json(error.to_string()))?;
    Fields::parse(text).map_err(|error| json(message_excerpt(&error)))
}

fn field<T: DeserializeOwned>(
    fields: &Fields,
    key: &'static str,
    expected: &'static str,
) -> Result<Option<T>, BadAttrs> {
    fields
        .value(key)
        .map_err(|_mismatch| bad_field(fields, key, expected))
}

fn bad_field(fields: &Fields, key: &'static str, expected: &'static str) -> BadAttrs {
    let value = fields.raw(key).map_or("absent", RawValue::get);
    BadAttrs::Field {
        key,
        value: excerpt(value).to_string(),
        expected,
    }
}

impl LeaseAttrs {
    /// Reads the value of a lease.
    pub fn parse(value: &[u8]) -> Result<Self, BadAttrs> {
        let fields = parse_object("the value", value)?;
        let data = |key| {
            fields
                .raw(key)
                .filter(|raw| raw.get() != "null")
                .map(|raw| RawJson(raw.to_owned()))
        };
        let public_ip = field::<Ipv4Addr>(&fields, "PublicIP", "an IPv4 address")?;
        let public_ipv6 = field::<Ipv6Addr>(&fields, "PublicIPv6", "an IPv6 address or null")?;
        Ok(Self {
            public_ip: public_ip.filter(|address| !address.is_unspecified()),
            public_ipv6: public_ipv6.filter(|address| !address.is_unspecified()),
            backend_type: backend_type(
                field(&fields, "BackendType", "the name of a backend")?.unwrap_or_default(),
            ),
            backend_data: data("BackendData"),
            backend_v6_data: data("BackendV6Data"),
        })
    }

    /// The JSON text, as flannel writes it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, addresses and raw JSON always serialise")
    }

    /// The address the node is known by: IPv4 where it has one.
    pub fn node_address(&self) -> Option<IpAddr> {
        self.public_ip
            .map(IpAddr::from)
            .or(self.public_ipv6.map(IpAddr::from))
    }

    /// The addresses the node is reached at.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.public_ip
            .map(IpAddr::from)
            .into_iter()
            .chain(self.public_ipv6.map(IpAddr::from))
    }

    /// Returns true if both are of one node. IPv4 decides where both have it, as in flannel.
    /// Otherwise IPv6 decides. This distinguishes nodes with only IPv6, which all have the IPv4
    /// address `0.0.0.0`, and a node recognizes itself after a family was turned on or off.
    pub fn is_same_node(&self, other: &Self) -> bool {
        match (self.public_ip, other.public_ip) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.public_ipv6.is_some() && self.public_ipv6 == other.public_ipv6,
        }
    }

    /// Compares the ends of the tunnels, which identify a device where an address does not.
    pub fn compare_ends(&self, other: &Self) -> EndMatch {
        let pairs = [
            (&self.backend_data, &other.backend_data),
            (&self.backend_v6_data, &other.backend_v6_data),
        ];
        let known =
            pairs.map(|(ours, theirs)| end_text(ours.as_ref()).zip(end_text(theirs.as_ref())));
        match known
            .into_iter()
            .flatten()
            .map(|(ours, theirs)| ours == theirs)
            .max()
        {
            None => EndMatch::Unknown,
            Some(true) => EndMatch::Same,
            Some(false) => EndMatch::Other,
        }
    }

    /// The VTEP MAC or public key, with its name; that of IPv4 where there are two.
    pub fn end(&self) -> Option<String> {
        end_text(self.backend_data.as_ref()).or_else(|| end_text(self.backend_v6_data.as_ref()))
    }
}

/// A comparison of the ends of a tunnel in two leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndMatch {
    /// They have the same VTEP MAC or public key in some family.
    Same,
    /// Both have one in some family, and none is the same.
    Other,
    /// In no family both have one: the backend has no tunnel, or none that names a device.
    Unknown,
}

/// The text of the VTEP MAC or public key in the data of one family.
fn end_text(data: Option<&RawJson>) -> Option<String> {
    tunnel_end(data?).map(|(name, end)| format!("{name} {end}"))
}

/// The VTEP MAC or public key in the data of one family: its name, and the value.
pub fn tunnel_end(data: &RawJson) -> Option<(&'static str, String)> {
    let mac = VxlanData::parse(data).map(|data| ("VTEP MAC", data.vtep_mac.to_string()));
    let key = || WireguardData::parse(data).map(|data| ("public key", data.public_key.to_string()));
    mac.or_else(|_no_mac| key()).ok()
}

/// The data the vxlan backend publishes for one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VxlanData {
    /// The network identifier; informational, and absent in leases of old versions.
    #[serde(rename = "VNI", skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// The address of the node's tunnel device.
    #[serde(rename = "VtepMAC", serialize_with = "as_text")]
    pub vtep_mac: Mac,
    /// True if the node accepts outer UDP over IPv6 without a checksum. Flannel does not define
    /// this key, and ignores it.
    #[serde(rename = "ZeroChecksumV6", skip_serializing_if = "std::ops::Not::not")]
    pub zero_checksum_v6: bool,
    /// True if the node is behind a NAT, so its packets may carry a source other than its public
    /// address. Flannel does not define this key, and ignores it.
    #[serde(rename = "OtherSource", skip_serializing_if = "std::ops::Not::not")]
    pub other_source: bool,
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl VxlanData {
    /// Reads `BackendData` or `BackendV6Data`.
    pub fn parse(data: &RawJson) -> Result<Self, BadAttrs> {
        let fields = parse_object("the backend data", data.text().as_bytes())?;
        let expected = "a MAC address such as c6:d2:32:6f:8f:44";
        let mac = field::<String>(&fields, "VtepMAC", expected)?.and_then(|text| text.parse().ok());
        Ok(Self {
            vni: field(&fields, "VNI", "a VXLAN network identifier")?,
            vtep_mac: mac.ok_or_else(|| bad_field(&fields, "VtepMAC", expected))?,
            zero_checksum_v6: field(&fields, "ZeroChecksumV6", "true or false")?
                .unwrap_or_default(),
            other_source: field(&fields, "OtherSource", "true or false")?.unwrap_or_default(),
        })
    }

    /// The JSON to publish.
    pub fn to_json(&self) -> RawJson {
        RawJson(to_raw_value(self).expect("a number and a string always serialise"))
    }
}

/// The data the wireguard backend publishes for one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WireguardData {
    /// The public key of the node's device.
    #[serde(rename = "PublicKey", serialize_with = "as_text")]
    pub public_key: PublicKey,
    /// The UDP port at which it is reached; absent in leases of old versions.
    #[serde(rename = "Port", skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl WireguardData {
    /// Reads `BackendData` or `BackendV6Data`.
    pub fn parse(data: &RawJson) -> Result<Self, BadAttrs> {
        let fields = parse_object("the backend data", data.text().as_bytes())?;
        let expected = "a public key: 32 bytes in base64";
        let key =
            field::<String>(&fields, "PublicKey", expected)?.and_then(|text| text.parse().ok());
        let port = field::<u16>(&fields, "Port", "a UDP port")?;
        Ok(Self {
            public_key: key.ok_or_else(|| bad_field(&fields, "PublicKey", expected))?,
            port: port.filter(|port| *port != 0),
        })
    }

    /// The JSON to publish.
    pub fn to_json(&self) -> RawJson {
        RawJson(to_raw_value(self).expect("a string and a number always serialise"))
    }
}
