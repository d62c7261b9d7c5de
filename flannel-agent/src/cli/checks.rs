//! Checks of values that take more than a parser: the files of TLS, the health address, patterns.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{
    OptionWarning, RawOptions,
    options::{Checks, OptionMistake, bad_value},
};
use crate::{
    iface::NamePattern,
    observe::log::Format,
    subnet::etcd::{ClientFiles, TlsFiles},
};

impl Checks {
    /// The files of TLS. One of certificate and key without the other is none, as in flanneld.
    pub(super) fn tls(raw: &RawOptions) -> TlsFiles {
        let file = |path: &str| (!path.is_empty()).then(|| path.into());
        let pair = file(&raw.etcd_certfile).zip(file(&raw.etcd_keyfile));
        TlsFiles { ca: file(&raw.etcd_cafile), client: pair.map(|(certificate, key)| ClientFiles { certificate, key }) }
    }

    /// What of the TLS options will have no effect, given the endpoints.
    pub(super) fn tls_warnings(raw: &RawOptions, endpoints: &[String]) -> Vec<OptionWarning> {
        let half = raw.etcd_certfile.is_empty() != raw.etcd_keyfile.is_empty();
        let named = !(raw.etcd_cafile.is_empty() && raw.etcd_certfile.is_empty() && raw.etcd_keyfile.is_empty());
        let plain = named && endpoints.iter().any(|endpoint| endpoint.starts_with("http://"));
        let warnings = [(half, OptionWarning::HalfClientCertificate), (plain, OptionWarning::PlainEndpoints)];
        warnings.into_iter().filter_map(|(applies, warning)| applies.then_some(warning)).collect()
    }

    /// Where health checks are answered; `None` for nowhere. An empty address is any, as in Go.
    pub(super) fn healthz(&mut self, raw: &RawOptions) -> Option<SocketAddr> {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let ip = self.optional("healthz-ip", &raw.healthz_ip, "an IP address").unwrap_or(unspecified);
        match u16::try_from(raw.healthz_port) {
            Ok(0) => None,
            Ok(port) => Some(SocketAddr::new(ip, port)),
            Err(_) => {
                self.mistakes.push(bad_value("healthz-port", raw.healthz_port, "0 to 65535"));
                None
            }
        }
    }

    /// The patterns that can be used; the others are mistakes.
    pub(super) fn patterns(&mut self, texts: &[String]) -> Vec<NamePattern> {
        let mut patterns = Vec::new();
        for text in texts.iter().filter(|text| !text.is_empty()) {
            match NamePattern::new(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => self.mistakes.push(OptionMistake::Regex(error)),
            }
        }
        patterns
    }

    /// How log lines are written.
    pub(super) fn log_format(&mut self, text: &str) -> Format {
        match text {
            "" | "text" => Format::Text,
            "json" => Format::Json,
            _ => {
                self.mistakes.push(bad_value("log-format", text, "text or json"));
                Format::Text
            }
        }
    }
}
