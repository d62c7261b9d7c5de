//! The flags of `run` as clap reads them, before anything is checked.

use clap::{ArgAction, Args};
use flannel_store::etcd::Secret;

/// The heading of the flags that Kubernetes alone asks for.
const KUBERNETES: &str = "Kubernetes";

/// The flags as given, with defaults filled in. The constructor of [`super::RunOptions`] checks and
/// converts them.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RawOptions {
    /// Comma-separated list of etcd endpoints; one is used until it fails, then the next
    #[arg(long, value_name = "URL,...", default_value = "http://127.0.0.1:4001,http://127.0.0.1:2379")]
    pub(super) etcd_endpoints: String,
    /// Our keys in etcd are PATH/config and PATH/subnets/...
    #[arg(long, value_name = "PATH", default_value = "/coreos.com/network")]
    pub(super) etcd_prefix: String,
    /// CA certificates for https endpoints, PEM; sufficient alone [default: the system's roots]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(super) etcd_cafile: String,
    /// Our certificate for https endpoints, PEM; with its key or not at all. Read again for every
    /// new connection; ignored with http endpoints
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(super) etcd_certfile: String,
    /// The key of --etcd-certfile, PEM
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(super) etcd_keyfile: String,
    /// User name for etcd; with one of name and password alone the agent warns and connects without
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) etcd_username: String,
    /// Password for etcd; prefer `FLANNELD_ETCD_PASSWORD`, which other users cannot read. Never
    /// logged
    #[arg(long, value_name = "PASSWORD", default_value = "", hide_default_value = true)]
    pub(super) etcd_password: Secret,
    /// Interface name or local address for traffic between nodes; tried in order when repeated
    /// [default: the default route's interface]
    #[arg(long, value_name = "NAME|IP")]
    pub(super) iface: Vec<String>,
    /// Regular expression (RE2) on local addresses, then on interface names; tried after every
    /// --iface, in order when repeated
    #[arg(long, value_name = "REGEX")]
    pub(super) iface_regex: Vec<String>,
    /// Take the interface and address that packets to this IP leave by; tried last
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    pub(super) iface_can_reach: String,
    /// IPv4 address other nodes reach us at, and who we are in etcd; without --iface it has to be a
    /// local one, and picks the interface [default: the interface's]
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    pub(super) public_ip: String,
    /// IPv6 address other nodes reach us at; both families use one interface [default: the
    /// interface's]
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    pub(super) public_ipv6: String,
    /// File with our subnet for the container runtime; absolute path
    #[arg(long, value_name = "FILE", default_value = "/run/flannel/subnet.env")]
    pub(super) subnet_file: String,
    /// Minutes before the end of a lease of a day at which it is renewed, 1 to 1439
    #[arg(long, value_name = "MINUTES", default_value_t = 60, allow_negative_numbers = true)]
    pub(super) subnet_lease_renew_margin: i64,
    /// Lifetime of the subnet lease in seconds; the margin is scaled to it
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, hide = true, allow_negative_numbers = true)]
    pub(super) subnet_lease_ttl: i64,
    /// Take subnets and peers from Kubernetes Nodes instead of etcd
    #[arg(long, help_heading = KUBERNETES, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) kube_subnet_mgr: bool,
    /// URL of the Kubernetes API server, also in place of a kubeconfig's [default: the pod's own
    /// cluster's, else the kubeconfig's]
    #[arg(long, help_heading = KUBERNETES, value_name = "URL", default_value = "", hide_default_value = true)]
    pub(super) kube_api_url: String,
    /// Prefix of our annotations on Nodes, flannel's
    #[arg(long, help_heading = KUBERNETES, value_name = "PREFIX", default_value = "flannel.alpha.coreos.com")]
    pub(super) kube_annotation_prefix: String,
    /// Kubeconfig file [default: the pod's service account, else the usual places]
    #[arg(long, help_heading = KUBERNETES, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(super) kubeconfig_file: String,
    /// File with the network configuration, instead of the key in etcd; its Subnet* keys are
    /// ignored
    #[arg(long, help_heading = KUBERNETES, value_name = "FILE", default_value = "/etc/kube-flannel/net-conf.json")]
    pub(super) net_config_path: String,
    /// Let the Node's condition `NetworkUnavailable` follow the state of its pod network: `False`
    /// when packets can flow, `True` after 10 s in which they cannot; an outage of the API server
    /// does not count
    #[arg(long, help_heading = KUBERNETES, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(super) set_node_network_unavailable: bool,
    /// Follow the pods of this node for the annotation `fast-path`, by which they stay out of mode
    /// `fast`; the role has to allow `pods` list and watch
    #[arg(long, help_heading = KUBERNETES, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) pod_opt_out: bool,
    /// Masquerade what pods send out of the pod network
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) ip_masq: bool,
    /// Masquerade without --random-fully, which is used where the tool knows it: pods keep their
    /// source ports where they can
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) ip_masq_fully_random_disable: bool,
    /// Accept forwarded packets from and to pods, by nftables too
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(super) iptables_forward_rules: bool,
    /// Seconds between two checks of iptables rules and the blackhole route, 1 at least: foreign
    /// changes are repaired by then
    #[arg(long, value_name = "SECONDS", default_value_t = 5, allow_negative_numbers = true)]
    pub(super) iptables_resync: i64,
    /// Keep a blackhole route for our own subnet, for what no pod has taken
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) ip_blackhole_route: bool,
    /// Keep an unreachable route for the whole pod network, with the largest metric: packets that
    /// no peer's route matches end here with ICMP unreachable, and do not leave unencapsulated by
    /// the default route. Not made where another program has a route to the same prefix, or where
    /// the address of this node or of the store is in the pod network
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(super) unreachable_route: bool,
    /// Address to answer health checks at, and `/metrics` without --metrics-port
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(super) healthz_ip: String,
    /// Port to answer health checks at, /healthz and /readyz, and /metrics without --metrics-port;
    /// 0 for none. A port that is taken ends the start with status 1
    #[arg(long, value_name = "PORT", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) healthz_port: i64,
    /// Address to answer `/metrics` at, with --metrics-port
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(super) metrics_ip: String,
    /// Port of its own for /metrics, for Prometheus, which --healthz-port does not answer then; 0
    /// for none. A port that is taken ends the start with status 1
    #[arg(long, value_name = "PORT", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) metrics_port: i64,
    /// Print the version and exit
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(crate) version: bool,
    /// Format of log lines on standard error: `text`, or `json` with one object each
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: String,
    /// Log verbosity: 0 = info, 1-5 = debug, 6+ = trace
    #[arg(long = "v", value_name = "LEVEL", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) v: i64,
    /// Directory for the agent's socket, lock, list of qdiscs it added and record of sysctls it
    /// changed; one agent at a time. Absolute path
    #[arg(long, value_name = "DIR", default_value = "/run/flannel")]
    pub(super) state_dir: String,
    /// Directory under which BPF objects are pinned; a bpf filesystem is mounted there, or on
    /// /sys/fs/bpf, when there is none. Absolute path
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/flannel")]
    pub(super) bpf_pin_root: String,
    /// Datapath mode: `kernel`, `encap`, `fast`, or `auto` to follow the network configuration
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(super) datapath: String,
    /// Tunnel packets that come from no peer: `enforce` drops them, `audit` logs them, `off` counts
    /// them
    #[arg(long, value_name = "MODE", default_value = "enforce")]
    pub(super) guard_outer: String,
    /// Tunnel packets of peers from outside their subnets: `enforce` drops them, `audit` logs them,
    /// `off` counts them
    #[arg(long, value_name = "MODE", default_value = "audit")]
    pub(super) guard_inner: String,
    /// Drop tunnel packets of strangers at the driver by XDP: `auto` where it can, `native` with an
    /// error where it cannot, `off`
    #[arg(long, value_name = "HOW", default_value = "off")]
    pub(super) xdp_guard: String,
    /// IPv4 peers from which on routes are made by nexthop objects; below half of it they are plain
    /// again
    #[arg(long, value_name = "PEERS", default_value_t = 2000, hide = true, allow_negative_numbers = true)]
    pub(super) nexthops_from: i64,
    /// Attachment of programs: `tcx` (kernel 6.6), `clsact`, or `auto` for what the kernel has
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(super) attach: String,
    /// Let mode `fast` set the sysctls of conntrack without which it leaves TCP alone:
    /// `nf_conntrack_tcp_be_liberal`, `_ignore_invalid_rst`, `_timeout_unacknowledged`,
    /// `_timeout_max_retrans`
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(super) conntrack_liberal: bool,
    /// Lower mode `fast` to `encap` (`kernel` with host-gw) while firewall rules judge, count, copy
    /// or log packets one by one, or cannot be read; lower both to `kernel` while such rules are
    /// for tunnel packets that leave
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) strict_rules: bool,
    /// Address or prefix of pods that stay out of mode `fast`; may be repeated
    #[arg(long, value_name = "IP|CIDR")]
    pub(super) fast_exclude: Vec<String>,
    /// Flows of each address family mode `fast` knows at most, 1000 to 1048576, at 184 bytes each
    /// (IPv6: 232); 0 takes a thousandth of the machine's memory, 16384 to 131072, or less under a
    /// memory limit
    #[arg(long, value_name = "FLOWS", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) flow_table_size: i64,
    /// Keep every capability the agent was started with, instead of those its options need
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) keep_capabilities: bool,
}
