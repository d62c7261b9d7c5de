//! Checks of values that take more than a parser: the files of TLS, addresses to listen on,
//! patterns.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use flannel_common::guard::{self, GuardMode};
use flannel_store::etcd::{ClientFiles, TlsFiles};
use ipnet::IpNet;

use super::{Checks, OptionMistake, OptionWarning, RawOptions, bad_value};
use crate::{
    datapath::attach::XdpGuardMode, guard::DEFAULT, iface::NamePattern, observe::log::LogFormat,
    traffic::TrafficOptions,
};

/// Below, the kernel's per-CPU shares of the table are most of it; above, it takes 200 MB of memory
/// for each family.
const FLOW_TABLE_SIZES: RangeInclusive<u32> = 1_000..=1 << 20;

impl Checks {
    /// The files of TLS. One of certificate and key without the other is none, as in flanneld.
    pub(super) fn tls(raw: &RawOptions) -> TlsFiles {
        let file = |path: &str| (!path.is_empty()).then(|| path.into());
        let pair = file(&raw.etcd_certfile).zip(file(&raw.etcd_keyfile));
        TlsFiles { ca: file(&raw.etcd_cafile), client: pair.map(|(certificate, key)| ClientFiles { certificate, key }) }
    }

    /// Returns the warnings about TLS options that have no effect, or not with all of these
    /// endpoints.
    pub(super) fn tls_warnings(raw: &RawOptions, endpoints: &[String]) -> Vec<OptionWarning> {
        let half = raw.etcd_certfile.is_empty() != raw.etcd_keyfile.is_empty();
        let named = !(raw.etcd_cafile.is_empty() && raw.etcd_certfile.is_empty() && raw.etcd_keyfile.is_empty());
        let plain = named && endpoints.iter().any(|endpoint| endpoint.starts_with("http://"));
        let warnings = [(half, OptionWarning::HalfClientCertificate), (plain, OptionWarning::PlainEndpoints)];
        warnings.into_iter().filter_map(|(applies, warning)| applies.then_some(warning)).collect()
    }

    /// Returns the address to listen on, by the two flags of a listener; `None` if the port is 0 or
    /// a mistake. An empty address means any, as in Go.
    pub(super) fn listener(
        &mut self,
        [ip_flag, port_flag]: [&'static str; 2],
        ip: &str,
        port: i64,
    ) -> Option<SocketAddr> {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let ip = self.optional(ip_flag, ip, "an IP address").unwrap_or(unspecified);
        match u16::try_from(port) {
            Ok(0) => None,
            Ok(port) => Some(SocketAddr::new(ip, port)),
            Err(_) => {
                self.mistakes.push(bad_value(port_flag, port, "0 to 65535"));
                None
            }
        }
    }

    /// Prefixes; an address is one of its own.
    pub(super) fn prefixes(&mut self, flag: &'static str, values: &[String]) -> Vec<IpNet> {
        let parse = |text: &str| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok();
        let mut prefixes = Vec::new();
        for value in values.iter().filter(|value| !value.is_empty()) {
            match parse(value) {
                Some(prefix) => prefixes.push(prefix),
                None => self.mistakes.push(bad_value(flag, value, "an IP address, or a prefix such as 10.244.1.0/28")),
            }
        }
        prefixes
    }

    /// The traffic rules. A period of no time would keep a processor busy.
    pub(super) fn traffic(&mut self, raw: &RawOptions) -> TrafficOptions {
        let seconds = u32::try_from(raw.iptables_resync).ok().filter(|seconds| *seconds > 0);
        if seconds.is_none() {
            self.mistakes.push(bad_value("iptables-resync", raw.iptables_resync, "1 to 4294967295 seconds"));
        }
        TrafficOptions {
            masquerade: raw.ip_masq,
            random_fully: !raw.ip_masq_fully_random_disable,
            forward: raw.iptables_forward_rules,
            blackhole: raw.ip_blackhole_route,
            resync: Duration::from_secs(seconds.unwrap_or(1).into()),
        }
    }

    /// The flows of each family; `None` to go by the machine's memory.
    pub(super) fn flow_table_size(&mut self, value: i64) -> Option<u32> {
        match u32::try_from(value) {
            Ok(0) => None,
            Ok(size) if FLOW_TABLE_SIZES.contains(&size) => Some(size),
            _ => {
                self.mistakes.push(bad_value("flow-table-size", value, "1000 to 1048576 flows, or 0"));
                None
            }
        }
    }

    /// The modes of the guard. Nothing given is the default, as for every option.
    pub(super) fn guard(&mut self, raw: &RawOptions) -> guard::Checks<GuardMode> {
        let expected = "off, audit or enforce";
        let guard::Checks { outer, inner } = DEFAULT;
        guard::Checks {
            outer: self.optional("guard-outer", &raw.guard_outer, expected).unwrap_or(outer),
            inner: self.optional("guard-inner", &raw.guard_inner, expected).unwrap_or(inner),
        }
    }

    /// Parses the mode of the guard at the driver (XDP). A bad value is a mistake, and counts as
    /// off.
    pub(super) fn xdp_guard(&mut self, text: &str) -> XdpGuardMode {
        match text {
            "" | "off" => XdpGuardMode::Off,
            "auto" => XdpGuardMode::Auto,
            "native" => XdpGuardMode::Native,
            _ => {
                self.mistakes.push(bad_value("xdp-guard", text, "auto, native or off"));
                XdpGuardMode::Off
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

    /// Parses the format of log lines. A bad value is a mistake, and counts as text.
    pub(super) fn log_format(&mut self, text: &str) -> LogFormat {
        match text {
            "" | "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            _ => {
                self.mistakes.push(bad_value("log-format", text, "text or json"));
                LogFormat::Text
            }
        }
    }
}
