//! The options of `run`, checked and typed.
//!
//! `RunOptions::new` is the only way from what was written to what is used; it reports every
//! mistake, not the first. A password leaves this module inside a [`flannel_store::etcd::Secret`]
//! only.

mod args;
pub(crate) mod flags;
pub(crate) mod go_style;
mod go_values;
mod parse;

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use flannel_common::{
    guard::{self, GuardMode},
    mode::Mode,
};
use flannel_store::{
    etcd::{Credentials, EtcdOptions},
    kube::{BadPrefix, KubeOptions},
};
use ipnet::IpNet;
use tracing::Level;

pub use self::args::RawOptions;
use crate::{
    datapath::attach::XdpGuardMode,
    iface::{BadPattern, IfaceOptions},
    observe::log::LogFormat,
    traffic::TrafficOptions,
};

/// Flannel's lease lifetime in minutes; the renew margin is written on this scale.
const DAY_MINUTES: i64 = 1440;

/// The mechanism by which programs are attached to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// TCX where the kernel has it (6.6), else clsact.
    #[default]
    Auto,
    /// TCX links only.
    Tcx,
    /// Filters of the clsact qdisc only.
    Clsact,
}

/// Everything `run` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The store, unless it is Kubernetes.
    pub etcd: EtcdOptions,
    /// Kubernetes, if that is the store.
    pub kube: Option<KubeOptions>,
    /// The external interface.
    pub iface: IfaceOptions,
    /// The traffic rules of this node.
    pub traffic: TrafficOptions,
    /// True if an unreachable route for the whole pod network is kept.
    pub unreachable_route: bool,
    /// IPv4 peers from which on routes are made by nexthop objects.
    pub nexthops_from: usize,
    /// The BPF programs.
    pub datapath: DatapathOptions,
    /// Mode `fast`.
    pub fast: FastOptions,
    /// The agent's files.
    pub paths: Paths,
    /// The agent's listeners.
    pub listeners: Listeners,
    /// The log.
    pub log: LogOptions,
    /// True if capabilities that are not needed are kept.
    pub keep_capabilities: bool,
    /// Options without the effect they ask for. To be logged once.
    pub warnings: Vec<OptionWarning>,
}

/// Options of the BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatapathOptions {
    /// The mode of this node; `None` follows the network configuration.
    pub mode: Option<Mode>,
    /// The modes of the guard.
    pub guard: guard::Checks<GuardMode>,
    /// The mode of the guard at the driver (XDP).
    pub xdp_guard: XdpGuardMode,
    /// The mechanism by which programs are attached.
    pub attach: AttachMode,
}

/// Options of mode `fast`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastOptions {
    /// True if it may make conntrack liberal.
    pub conntrack_liberal: bool,
    /// True if rules that judge single packets lower the mode.
    pub strict_rules: bool,
    /// Pods with such addresses stay out of it.
    pub exclude: Vec<IpNet>,
    /// Flows of each family; `None` goes by the machine's memory.
    pub flow_table_size: Option<u32>,
}

/// The paths of the agent's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// subnet.env.
    pub subnet_file: PathBuf,
    /// The directory of the agent's socket and state.
    pub state_dir: PathBuf,
    /// The directory under which BPF objects are pinned.
    pub bpf_pin_root: PathBuf,
}

/// The addresses at which the agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// Health checks; `None` if they are not answered.
    pub healthz: Option<SocketAddr>,
    /// Metrics; `None` for the address of health checks.
    pub metrics: Option<SocketAddr>,
}

/// Options of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The most detailed level.
    pub level: Level,
    /// The format of lines.
    pub format: LogFormat,
}

/// An option without the effect it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionWarning {
    /// Only one of user name and password is set; flannel authenticates with both or not at all.
    HalfCredentials,
    /// Only one of client certificate and key is named; flannel uses both or neither.
    HalfClientCertificate,
    /// Files for TLS are named, and there are `http://` endpoints.
    PlainEndpoints,
}

impl fmt::Display for OptionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HalfCredentials => {
                "only one of --etcd-username and --etcd-password is set; connecting to etcd without authentication"
            }
            Self::HalfClientCertificate => {
                "only one of --etcd-certfile and --etcd-keyfile is set; connecting to etcd without a client certificate"
            }
            Self::PlainEndpoints => {
                "--etcd-cafile, --etcd-certfile and --etcd-keyfile do nothing for the http:// endpoints; write https:// \
                 to use TLS"
            }
        })
    }
}

/// An option value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionMistake {
    #[error("--{flag} is {value:?}, expected {expected}")]
    BadValue { flag: &'static str, value: String, expected: &'static str },
    /// The value is a secret and is not quoted.
    #[error("--{flag} has a user name or password in a URL, which is not used and would be shown; {remedy}")]
    UserInfo { flag: &'static str, remedy: &'static str },
    #[error(transparent)]
    Regex(BadPattern),
    #[error("--kube-annotation-prefix: {0}")]
    AnnotationPrefix(BadPrefix),
}

pub(super) fn bad_value(flag: &'static str, value: impl fmt::Display, expected: &'static str) -> OptionMistake {
    OptionMistake::BadValue { flag, value: value.to_string(), expected }
}

impl RunOptions {
    /// Checks what was written. All mistakes are returned together.
    pub(super) fn new(raw: RawOptions) -> Result<Self, Vec<OptionMistake>> {
        let mut checks = Checks::default();
        let half = raw.etcd_username.is_empty() != raw.etcd_password.reveal().is_empty();
        let etcd = checks.etcd(&raw);
        let warnings = half.then_some(OptionWarning::HalfCredentials).into_iter();
        let options = Self {
            warnings: warnings.chain(Checks::tls_warnings(&raw, &etcd.endpoints)).collect(),
            datapath: checks.datapath(&raw),
            paths: checks.paths(&raw),
            listeners: Listeners {
                healthz: checks.listener(["healthz-ip", "healthz-port"], &raw.healthz_ip, raw.healthz_port),
                metrics: checks.listener(["metrics-ip", "metrics-port"], &raw.metrics_ip, raw.metrics_port),
            },
            log: LogOptions { level: log_level(raw.v), format: checks.log_format(&raw.log_format) },
            fast: FastOptions {
                conntrack_liberal: raw.conntrack_liberal,
                strict_rules: raw.strict_rules,
                exclude: checks.prefixes("fast-exclude", &raw.fast_exclude),
                flow_table_size: checks.flow_table_size(raw.flow_table_size),
            },
            nexthops_from: checks.nexthops_from(raw.nexthops_from),
            keep_capabilities: raw.keep_capabilities,
            traffic: checks.traffic(&raw),
            unreachable_route: raw.unreachable_route,
            etcd,
            kube: raw.kube_subnet_mgr.then(|| checks.kube(&raw)),
            iface: checks.iface(raw),
        };
        if checks.mistakes.is_empty() { Ok(options) } else { Err(checks.mistakes) }
    }
}

/// klog's levels, of which flannel uses 1, 2, 4, 6 and 10, on tracing's scale.
fn log_level(v: i64) -> Level {
    match v {
        ..=0 => Level::INFO,
        1..=5 => Level::DEBUG,
        _ => Level::TRACE,
    }
}

/// Collects mistakes; a value that follows one is never used.
#[derive(Default)]
pub(super) struct Checks {
    pub(super) mistakes: Vec<OptionMistake>,
}

impl Checks {
    pub(super) fn optional<T: FromStr>(
        &mut self,
        flag: &'static str,
        value: &str,
        expected: &'static str,
    ) -> Option<T> {
        if value.is_empty() {
            return None;
        }
        let parsed = value.parse().ok();
        if parsed.is_none() {
            self.mistakes.push(bad_value(flag, value, expected));
        }
        parsed
    }

    fn iface(&mut self, raw: RawOptions) -> IfaceOptions {
        IfaceOptions {
            patterns: self.patterns(&raw.iface_regex),
            can_reach: self.optional("iface-can-reach", &raw.iface_can_reach, "an IP address"),
            public_ip: self.optional("public-ip", &raw.public_ip, "an IPv4 address"),
            public_ipv6: self.optional("public-ipv6", &raw.public_ipv6, "an IPv6 address"),
            iface: raw.iface.into_iter().filter(|iface| !iface.is_empty()).collect(),
        }
    }

    fn paths(&mut self, raw: &RawOptions) -> Paths {
        Paths {
            subnet_file: self.path("subnet-file", &raw.subnet_file),
            state_dir: self.path("state-dir", &raw.state_dir),
            bpf_pin_root: self.path("bpf-pin-root", &raw.bpf_pin_root),
        }
    }

    fn path(&mut self, flag: &'static str, value: &str) -> PathBuf {
        let path = PathBuf::from(value);
        if !path.is_absolute() {
            self.mistakes.push(bad_value(flag, value, "an absolute path"));
        }
        path
    }

    fn datapath(&mut self, raw: &RawOptions) -> DatapathOptions {
        DatapathOptions {
            mode: self.mode(&raw.datapath),
            guard: self.guard(raw),
            xdp_guard: self.xdp_guard(&raw.xdp_guard),
            attach: self.attach(&raw.attach),
        }
    }

    fn mode(&mut self, value: &str) -> Option<Mode> {
        match value {
            "auto" => None,
            _ => self.optional("datapath", value, "kernel, encap, fast or auto"),
        }
    }

    fn nexthops_from(&mut self, value: i64) -> usize {
        usize::try_from(value).unwrap_or_else(|_negative| {
            self.mistakes.push(bad_value("nexthops-from", value, "a number of peers"));
            0
        })
    }

    fn attach(&mut self, value: &str) -> AttachMode {
        match value {
            "" | "auto" => AttachMode::Auto,
            "tcx" => AttachMode::Tcx,
            "clsact" => AttachMode::Clsact,
            _ => {
                self.mistakes.push(bad_value("attach", value, "auto, tcx or clsact"));
                AttachMode::Auto
            }
        }
    }

    /// Refuses user information in URLs. What is no URL may be one with a password that has to be
    /// escaped.
    fn has_user_info(&mut self, flag: &'static str, value: &str, remedy: &'static str) -> bool {
        let found = match value.parse::<http::Uri>() {
            Ok(url) => url.authority().is_some_and(|authority| authority.as_str().contains('@')),
            Err(_) => value.contains('@'),
        };
        if found {
            self.mistakes.push(OptionMistake::UserInfo { flag, remedy });
        }
        found
    }

    fn api_url(&mut self, raw: &RawOptions) {
        if self.has_user_info("kube-api-url", &raw.kube_api_url, "use --kubeconfig-file for credentials") {
            return;
        }
        let url: Option<http::Uri> = self.optional("kube-api-url", &raw.kube_api_url, "a URL");
        if url.is_some_and(|url| url.scheme().is_none() || url.host().is_none()) {
            self.mistakes.push(bad_value("kube-api-url", &raw.kube_api_url, "http://host:port or https://host:port"));
        }
    }

    fn kube(&mut self, raw: &RawOptions) -> KubeOptions {
        self.api_url(raw);
        let prefix = raw.kube_annotation_prefix.parse();
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let options = KubeOptions {
            api_url: text(&raw.kube_api_url),
            kubeconfig: text(&raw.kubeconfig_file).map(PathBuf::from),
            prefix: prefix.clone().unwrap_or_default(),
            net_config: PathBuf::from(&raw.net_config_path),
            set_network_unavailable: raw.set_node_network_unavailable,
            pod_opt_out: raw.pod_opt_out,
        };
        self.mistakes.extend(prefix.err().map(OptionMistake::AnnotationPrefix));
        options
    }

    fn etcd(&mut self, raw: &RawOptions) -> EtcdOptions {
        let both = !raw.etcd_username.is_empty() && !raw.etcd_password.reveal().is_empty();
        let credentials =
            both.then(|| Credentials { username: raw.etcd_username.clone(), password: raw.etcd_password.clone() });
        let endpoints = self.endpoints(&raw.etcd_endpoints);
        let (lease_ttl, renew_margin) = self.lease_times(raw);
        let tls = Self::tls(raw);
        EtcdOptions { endpoints, tls, prefix: raw.etcd_prefix.clone(), credentials, lease_ttl, renew_margin }
    }

    /// A password may have a comma, so user information is looked for before the list is split.
    fn endpoints(&mut self, text: &str) -> Vec<String> {
        const REMEDY: &str = "use --etcd-username and FLANNELD_ETCD_PASSWORD, or --etcd-password";
        if text.contains('@') {
            self.mistakes.push(OptionMistake::UserInfo { flag: "etcd-endpoints", remedy: REMEDY });
            return Vec::new();
        }
        text.split(',').filter_map(|endpoint| self.endpoint(endpoint.trim())).collect()
    }

    fn endpoint(&mut self, text: &str) -> Option<String> {
        match text.split_once("://").unwrap_or(("http", text)) {
            (scheme @ ("http" | "https"), host) if !host.is_empty() && !host.contains(char::is_whitespace) => {
                Some(format!("{scheme}://{}", host.trim_end_matches('/')))
            }
            _ => {
                let expected = "http://host:port or https://host:port, comma-separated";
                self.mistakes.push(bad_value("etcd-endpoints", text, expected));
                None
            }
        }
    }

    /// Lifetime and margin. The margin keeps its proportion to a day whatever the lifetime is.
    fn lease_times(&mut self, raw: &RawOptions) -> (Duration, Duration) {
        let (margin, ttl) = (raw.subnet_lease_renew_margin, raw.subnet_lease_ttl);
        if !(1..DAY_MINUTES).contains(&margin) {
            self.mistakes.push(bad_value("subnet-lease-renew-margin", margin, "1 to 1439 minutes"));
        }
        let Some(seconds) = u32::try_from(ttl).ok().filter(|seconds| *seconds > 0) else {
            self.mistakes.push(bad_value("subnet-lease-ttl", ttl, "1 to 4294967295 seconds"));
            return (Duration::ZERO, Duration::ZERO);
        };
        let ttl = Duration::from_secs(seconds.into());
        let in_minutes = |minutes: i64| u32::try_from(minutes.clamp(1, DAY_MINUTES)).unwrap_or(1);
        (ttl, ttl * in_minutes(margin) / in_minutes(DAY_MINUTES))
    }
}
