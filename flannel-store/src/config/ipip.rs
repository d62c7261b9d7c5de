//! The settings of the ipip backend.

use super::{
    error::{ConfigMistake, Result},
    findings::Findings,
    gojson::Fields,
};

pub(super) const IPIP_KEYS: &[&str] = &["DirectRouting"];

/// The settings of the ipip backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpipConfig {
    /// Plain routes instead of tunnels to peers on the same link.
    pub direct_routing: bool,
}

/// `None` only after a mistake.
pub(super) fn parse(fields: &Fields, ipv6: bool, findings: &mut Findings) -> Option<IpipConfig> {
    let families = findings.keep(ipv4_alone(ipv6));
    let direct_routing = findings.keep(fields.flag("DirectRouting", false));
    families?;
    Some(IpipConfig { direct_routing: direct_routing? })
}

fn ipv4_alone(ipv6: bool) -> Result<()> {
    if ipv6 { Err(ConfigMistake::Ipv4Alone { key: "EnableIPv6", backend: "ipip" }) } else { Ok(()) }
}
