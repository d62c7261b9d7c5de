//! The options of `run`: flags as they are written, checks, and typed options.
//!
//! A file for each group of flags has all three. `RunOptions::new` is the only way from what was
//! written to what is used; it reports every mistake, not the first. A password leaves this module
//! inside a [`flannel_host::secret::Secret`] only.

mod check;
mod cloud;
mod datapath;
mod echo;
mod etcd;
mod fast;
pub mod flags;
mod flows;
pub mod go_style;
mod iface;
mod kube;
mod listeners;
mod log;
mod paths;
mod traffic;
pub mod values;
mod warning;

use std::time::Duration;

use clap::{ArgAction, Args};
use flannel_fast::FastOptions;
use flannel_iface::IfaceOptions;
use flannel_store::{etcd::EtcdOptions, kube::KubeOptions};
use flannel_traffic::TrafficOptions;

use self::check::Checks;
pub use self::{
    check::OptionMistake,
    datapath::{AttachMode, DatapathOptions},
    etcd::EtcdAccess,
    flows::FlowOptions,
    listeners::{Listeners, TrafficSeries},
    log::LogOptions,
    paths::Paths,
    warning::OptionWarning,
};
pub use crate::values::one_of::OneOf;

/// The flags of `run` as clap reads them, with defaults filled in, before anything is checked.
/// [`RunOptions::new`] checks and converts them.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// Print the version and exit
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub version: bool,
    #[command(flatten)]
    etcd: etcd::EtcdFlags,
    #[command(flatten)]
    kube: kube::KubeFlags,
    #[command(flatten)]
    iface: iface::IfaceFlags,
    #[command(flatten)]
    datapath: datapath::DatapathFlags,
    #[command(flatten)]
    fast: fast::FastFlags,
    #[command(flatten)]
    traffic: traffic::TrafficFlags,
    #[command(flatten)]
    listeners: listeners::ListenerFlags,
    #[command(flatten)]
    flows: flows::FlowFlags,
    #[command(flatten)]
    echo: echo::EchoFlags,
    #[command(flatten)]
    cloud: cloud::CloudFlags,
    #[command(flatten)]
    log: log::LogFlags,
    #[command(flatten)]
    paths: paths::PathFlags,
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
    /// The BPF programs.
    pub datapath: DatapathOptions,
    /// Mode `fast`.
    pub fast: FastOptions,
    /// The traffic rules of this node.
    pub traffic: TrafficOptions,
    /// True if forwarding is switched on where it is off.
    pub set_forwarding: bool,
    /// True if an unreachable route for the whole pod network is kept.
    pub unreachable_route: bool,
    /// IPv4 peers from which on routes are made by nexthop objects.
    pub nexthops_from: usize,
    /// The addresses at which the agent answers.
    pub listeners: Listeners,
    /// The view of flows.
    pub flows: FlowOptions,
    /// The time between two echo requests to each peer; `None` for none.
    pub echo_interval: Option<Duration>,
    /// The time between two looks at the route tables of a cloud.
    pub cloud_interval: Duration,
    /// The log.
    pub log: LogOptions,
    /// The agent's files.
    pub paths: Paths,
    /// True if capabilities that are not needed are kept.
    pub keep_capabilities: bool,
    /// Options without the effect they ask for. To be logged once.
    pub warnings: Vec<OptionWarning>,
}

impl RunOptions {
    /// Checks what was written. All mistakes are returned together.
    pub fn new(flags: &RunFlags) -> Result<Self, Vec<OptionMistake>> {
        let mut checks = Checks::default();
        let etcd = flags.etcd.check(&mut checks);
        let options = Self {
            warnings: flags
                .etcd
                .warnings(&etcd.endpoints)
                .into_iter()
                .chain(flags.traffic.warning())
                .collect(),
            etcd,
            kube: flags.kube.check(&mut checks),
            iface: flags.iface.check(&mut checks),
            datapath: flags.datapath.check(&mut checks),
            fast: flags.fast.check(&mut checks),
            traffic: flags.traffic.check(&mut checks),
            set_forwarding: flags.traffic.set_forwarding,
            unreachable_route: flags.traffic.unreachable_route,
            nexthops_from: flags.traffic.check_nexthops_from(&mut checks),
            listeners: flags.listeners.check(&mut checks),
            flows: flags.flows.check(&mut checks),
            echo_interval: flags.echo.check(&mut checks),
            cloud_interval: flags.cloud.check(&mut checks),
            log: flags.log.check(&mut checks),
            paths: flags.paths.check(&mut checks),
            keep_capabilities: flags.paths.keep_capabilities,
        };
        if checks.mistakes.is_empty() {
            Ok(options)
        } else {
            Err(checks.mistakes)
        }
    }
}
