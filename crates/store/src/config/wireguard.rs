//! The settings of the wireguard backend.

use std::fmt;

use flannel_host::wireguard_key::SecretKey;

use super::{
    error::{ConfigMistake, Result},
    findings::Findings,
    gojson::Fields,
    mtu::mtu_of,
};

/// The UDP ports of a configuration that sets none.
const DEFAULT_PORTS: (u16, u16) = (51820, 51821);
/// Below, the tunnel device could not carry IPv4's minimum of 68 bytes after 80 of overhead.
pub(super) const MIN_MTU: u16 = 148;
/// Below, the kernel takes IPv6 off the device: its minimum is 1280 bytes (`addrconf_notify()` in
/// [net/ipv6/addrconf.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/addrconf.c)).
pub(super) const MIN_MTU_V6: u16 = 1360;
pub(super) const WIREGUARD_KEYS: &[&str] = &[
    "ListenPort",
    "ListenPortV6",
    "MTU",
    "PSK",
    "PersistentKeepaliveInterval",
    "Mode",
];

/// The settings of the wireguard backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireguardConfig {
    /// The UDP port of the device, and in the mode `separate` of the device for IPv4.
    pub port: u16,
    /// The UDP port of the device for IPv6, in the mode `separate`.
    pub port_v6: u16,
    /// The budget for the outer packet in bytes; `None` takes it from the external interface.
    pub mtu: Option<u16>,
    /// The secret that all nodes share in addition to their keys.
    pub preshared_key: Option<SecretKey>,
    /// Seconds between two packets that keep an idle tunnel open; `None` for none.
    pub keepalive: Option<u16>,
    /// The number of devices, and the addresses by which they reach peers.
    pub mode: WireguardMode,
}

/// `Backend.Mode`: one device for each family, or one for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireguardMode {
    /// A device for each family: IPv4 pods by IPv4, IPv6 pods by IPv6.
    #[default]
    Separate,
    /// One device; each peer by the address that suits both nodes.
    Auto,
    /// One device; every peer by IPv4.
    Ipv4,
    /// One device; every peer by IPv6.
    Ipv6,
}

impl WireguardMode {
    const ALL: [Self; 4] = [Self::Separate, Self::Auto, Self::Ipv4, Self::Ipv6];

    const fn name(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::Auto => "auto",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

impl fmt::Display for WireguardMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

pub(super) fn parse(
    fields: &Fields,
    ipv6: bool,
    findings: &mut Findings,
) -> Option<WireguardConfig> {
    let port = |key, default| {
        fields
            .expect::<u16>(key, "a UDP port, 1..=65535")
            .map(|port| port_or(port, default))
    };
    let own_port = findings.keep(port("ListenPort", DEFAULT_PORTS.0));
    let port_v6 = findings.keep(port("ListenPortV6", DEFAULT_PORTS.1));
    let mtu = findings.keep(parse_mtu(fields, ipv6));
    let preshared_key = findings.keep(parse_preshared_key(fields));
    let expected = "a number of seconds, 0..=65535";
    let keepalive = findings.keep(fields.expect::<u16>("PersistentKeepaliveInterval", expected));
    let mode = findings.keep(parse_mode(fields));
    Some(WireguardConfig {
        port: own_port?,
        port_v6: port_v6?,
        mtu: mtu?,
        preshared_key: preshared_key?,
        keepalive: keepalive?.filter(|seconds| *seconds != 0),
        mode: mode?,
    })
}

/// Zero is as if the key were absent: peers of old versions, which publish no port, are reached at
/// ours, so a port that the kernel chooses would not do.
fn port_or(port: Option<u16>, default: u16) -> u16 {
    port.filter(|port| *port != 0).unwrap_or(default)
}

fn parse_mtu(fields: &Fields, ipv6: bool) -> Result<Option<u16>> {
    if ipv6 {
        mtu_of(
            fields,
            MIN_MTU_V6,
            "a number of bytes, 1360..=65535 with IPv6, or 0 for the external interface's MTU",
        )
    } else {
        mtu_of(
            fields,
            MIN_MTU,
            "a number of bytes, 148..=65535, or 0 for the external interface's MTU",
        )
    }
}

fn parse_preshared_key(fields: &Fields) -> Result<Option<SecretKey>> {
    let bad = || ConfigMistake::BadSecret {
        key: "PSK",
        expected: "32 bytes in base64, as `wg genpsk` prints them, or an empty text for none",
    };
    let text = fields
        .expect::<String>("PSK", "a text")
        .map_err(|_shows_it| bad())?
        .unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_malformed| bad())
}

fn parse_mode(fields: &Fields) -> Result<WireguardMode> {
    let expected = "separate, auto, ipv4 or ipv6";
    match fields.expect::<String>("Mode", expected)?.as_deref() {
        None | Some("") => Ok(WireguardMode::default()),
        Some(name) => {
            let mode = WireguardMode::ALL
                .into_iter()
                .find(|mode| mode.name() == name);
            mode.ok_or_else(|| fields.bad_value("Mode", expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BackendConfig, NetworkConfig};
    use super::*;

    const PSK: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

    fn parse(more: &str) -> std::result::Result<WireguardConfig, String> {
        let text = format!(r#"{{"Network":"10.5.0.0/16","Backend":{{"Type":"wireguard"{more}}}}}"#);
        let config = NetworkConfig::parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(config.warnings, []);
        let BackendConfig::Wireguard(config) = config.backend else {
            panic!("another backend")
        };
        Ok(config)
    }

    #[test]
    fn every_setting_has_its_default_and_is_read() {
        let default = WireguardConfig {
            port: 51820,
            port_v6: 51821,
            mtu: None,
            preshared_key: None,
            keepalive: None,
            mode: WireguardMode::Separate,
        };
        let zeros = r#","ListenPort":0,"ListenPortV6":0,"MTU":0,"PSK":"","PersistentKeepaliveInterval":0,"Mode":"""#;
        assert_eq!((parse(""), parse(zeros)), (Ok(default), Ok(default)));
        let all = format!(
            r#","listenport":1,"ListenPortV6":2,"MTU":1400,"PSK":"{PSK}","PersistentKeepaliveInterval":25,"Mode":"auto""#
        );
        let set = WireguardConfig {
            port: 1,
            port_v6: 2,
            mtu: Some(1400),
            preshared_key: PSK.parse().ok(),
            keepalive: Some(25),
            mode: WireguardMode::Auto,
        };
        assert_eq!(parse(&all), Ok(set));
    }

    #[test]
    fn mistakes_are_named_and_a_secret_is_not_repeated() {
        for (more, expected) in [
            (
                r#","Mode":"both""#,
                "Mode in the network configuration is \"both\", expected separate, auto, ipv4 or \
                 ipv6",
            ),
            (
                r#","MTU":100"#,
                "MTU in the network configuration is 100, expected a number of bytes, 148..=65535",
            ),
            (
                r#","ListenPort":70000"#,
                "ListenPort in the network configuration is 70000, expected a UDP port",
            ),
            (
                r#","PersistentKeepaliveInterval":-1"#,
                "PersistentKeepaliveInterval in the network configuration is -1",
            ),
            (
                r#","PSK":"hunter2""#,
                "PSK in the network configuration cannot be read, expected 32 bytes in base64",
            ),
            (
                r#","PSK":["hunter2"]"#,
                "PSK in the network configuration cannot be read",
            ),
        ] {
            let error = parse(more).expect_err(more);
            assert!(
                error.contains(expected) && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
