//! The settings of the udp backend.

use super::{findings::Findings, gojson::Fields, mtu::mtu_of};

/// The UDP port of a configuration that sets none.
const DEFAULT_PORT: u16 = 8285;
/// Below, the device could not carry IPv4's minimum of 68 bytes after 28 of overhead.
pub(super) const MIN_MTU: u16 = 96;
pub(super) const UDP_KEYS: &[&str] = &["Port", "MTU"];

/// The settings of the udp backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The UDP port of all nodes.
    pub port: u16,
    /// The budget for the outer packet in bytes; `None` takes it from the external interface.
    pub mtu: Option<u16>,
}

/// Reads the keys.
pub(super) fn parse(fields: &Fields, findings: &mut Findings) -> Option<UdpConfig> {
    let port = findings.keep(fields.expect::<u16>("Port", "a UDP port, 0..=65535"));
    let expected = "a number of bytes, 96..=65535, or 0 for the external interface's MTU";
    let mtu = findings.keep(mtu_of(fields, MIN_MTU, expected));
    Some(UdpConfig {
        port: port?.filter(|port| *port != 0).unwrap_or(DEFAULT_PORT),
        mtu: mtu?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{BackendConfig, NetworkConfig};
    use super::*;

    fn parse(top: &str, more: &str) -> Result<UdpConfig, String> {
        let text = format!(r#"{{"Network":"10.5.0.0/16"{top},"Backend":{{"Type":"UDP"{more}}}}}"#);
        let config = NetworkConfig::parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(config.warnings, []);
        let BackendConfig::Udp(config) = config.backend else {
            panic!("another backend")
        };
        Ok(config)
    }

    #[test]
    fn port_and_mtu_are_read() {
        assert_eq!(
            parse("", ""),
            Ok(UdpConfig {
                port: 8285,
                mtu: None
            })
        );
        assert_eq!(
            parse("", r#","Port":0,"MTU":0"#),
            Ok(UdpConfig {
                port: 8285,
                mtu: None
            })
        );
        assert_eq!(
            parse("", r#","port":7000,"MTU":1400"#),
            Ok(UdpConfig {
                port: 7000,
                mtu: Some(1400)
            })
        );
    }

    #[test]
    fn mistakes_are_named() {
        let ipv6 = r#","EnableIPv6":true,"IPv6Network":"fd00::/48""#;
        for (top, more, expected) in [
            (
                ipv6,
                "",
                "Backend.Type udp carries IPv4 alone; set EnableIPv6 to false",
            ),
            (
                "",
                r#","Port":70000"#,
                "Port in the network configuration is 70000, expected a UDP port",
            ),
            (
                "",
                r#","MTU":95"#,
                "MTU in the network configuration is 95, expected a number of bytes, 96",
            ),
        ] {
            let error = parse(top, more).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
