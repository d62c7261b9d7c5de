//! The settings of the ipip backend.

use super::{findings::Findings, gojson::Fields};

pub(super) const IPIP_KEYS: &[&str] = &["DirectRouting"];

/// The settings of the ipip backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpipConfig {
    /// Plain routes instead of tunnels to peers on the same link.
    pub direct_routing: bool,
}

/// `None` only after a mistake.
pub(super) fn parse(fields: &Fields, findings: &mut Findings) -> Option<IpipConfig> {
    let direct_routing = findings.keep(fields.flag("DirectRouting", false));
    Some(IpipConfig {
        direct_routing: direct_routing?,
    })
}
