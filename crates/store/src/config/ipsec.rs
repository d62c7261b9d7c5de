//! The settings of the ipsec backend.

use flannel_host::secret::Secret;

use super::{
    error::{ConfigMistake, Result},
    findings::Findings,
    gojson::Fields,
};

pub(super) const IPSEC_KEYS: &[&str] = &["UDPEncap", "ESPProposal", "PSK"];
/// The proposal of a configuration that sets none, as in flannel.
const DEFAULT_PROPOSAL: &str = "aes128gcm16-sha256-prfsha256-ecp256";
/// Flannel accepts no shorter secret.
const LEAST_PSK: usize = 96;

/// The settings of the ipsec backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpsecConfig {
    /// Encrypted packets travel in UDP datagrams, to port 4500.
    pub udp_encap: bool,
    /// The algorithms of encrypted packets, as strongSwan writes them.
    pub esp_proposal: String,
    /// The secret that all nodes share.
    pub psk: Secret,
}

/// Reads the keys. `None` only after a mistake.
pub(super) fn parse(fields: &Fields, findings: &mut Findings) -> Option<IpsecConfig> {
    let udp_encap = findings.keep(fields.flag("UDPEncap", false));
    let esp_proposal = findings.keep(parse_proposal(fields));
    let psk = findings.keep(parse_psk(fields));
    Some(IpsecConfig {
        udp_encap: udp_encap?,
        esp_proposal: esp_proposal?,
        psk: psk?,
    })
}

fn parse_proposal(fields: &Fields) -> Result<String> {
    let expected = "algorithms in the form aes128gcm16-sha256-prfsha256-ecp256";
    let proposal = fields
        .expect::<String>("ESPProposal", expected)?
        .filter(|text| !text.is_empty());
    let is_part = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-'
    };
    match proposal {
        None => Ok(DEFAULT_PROPOSAL.to_owned()),
        Some(text) if text.chars().all(is_part) => Ok(text),
        Some(_) => Err(fields.bad_value("ESPProposal", expected)),
    }
}

/// A mistake shows no value.
fn parse_psk(fields: &Fields) -> Result<Secret> {
    let bad = |_shows_it| ConfigMistake::BadSecret {
        key: "PSK",
        expected: "a text of at least 96 characters",
    };
    let text = fields
        .expect::<String>("PSK", "a text")
        .map_err(bad)?
        .unwrap_or_default();
    let length = text.len();
    if length < LEAST_PSK {
        return Err(ConfigMistake::ShortSecret {
            backend: "ipsec",
            key: "PSK",
            least: LEAST_PSK,
            length,
        });
    }
    Ok(text.as_str().into())
}

#[cfg(test)]
mod tests {
    use super::super::{BackendConfig, NetworkConfig};
    use super::*;

    fn parse(top: &str, more: &str) -> std::result::Result<IpsecConfig, String> {
        let text =
            format!(r#"{{"Network":"10.5.0.0/16"{top},"Backend":{{"Type":"IPsec"{more}}}}}"#);
        let config = NetworkConfig::parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(config.warnings, []);
        assert!(
            !format!("{config:?}").contains("hunter2"),
            "the secret is shown"
        );
        let BackendConfig::Ipsec(config) = config.backend else {
            panic!("another backend")
        };
        Ok(config)
    }

    fn psk(length: usize) -> String {
        format!(r#","PSK":"hunter2{}""#, "x".repeat(length - 7))
    }

    #[test]
    fn keys_are_read_and_have_flannels_defaults() {
        let config = parse("", &psk(96)).expect("a configuration");
        assert_eq!(
            (config.udp_encap, config.esp_proposal.as_str()),
            (false, DEFAULT_PROPOSAL)
        );
        assert_eq!(config.psk.reveal().len(), 96);
        let more = format!(
            r#"{},"udpencap":true,"ESPProposal":"aes256-sha512""#,
            psk(200)
        );
        let config = parse("", &more).expect("a configuration");
        assert_eq!(
            (config.udp_encap, config.esp_proposal.as_str()),
            (true, "aes256-sha512")
        );
    }

    #[test]
    fn mistakes_are_named_and_show_no_secret() {
        let ipv6 = r#","EnableIPv6":true,"IPv6Network":"fd00::/48""#;
        let needs = "needs a PSK of at least 96 characters for the backend ipsec, and has";
        let proposal = |text: &str| format!(r#"{},"ESPProposal":"{text}""#, psk(96));
        for (top, more, expected) in [
            ("", String::new(), format!("{needs} 0")),
            ("", r#","PSK":null"#.to_owned(), format!("{needs} 0")),
            (
                "",
                psk(95),
                format!("{needs} 95: `openssl rand -hex 48` prints one of 96"),
            ),
            (
                "",
                r#","PSK":["hunter2"]"#.to_owned(),
                "PSK in the network configuration cannot be read".to_owned(),
            ),
            (
                "",
                proposal("aes128 }"),
                "ESPProposal in the network configuration is".to_owned(),
            ),
            (
                "",
                format!(r#"{},"UDPEncap":"yes""#, psk(96)),
                "UDPEncap in the network configuration is".to_owned(),
            ),
            (
                ipv6,
                psk(96),
                "Backend.Type ipsec carries IPv4 alone; set EnableIPv6 to false".to_owned(),
            ),
        ] {
            let error = parse(top, &more).expect_err(&expected);
            assert!(
                error.contains(&expected) && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
