//! The table of the flags `run` knows: flanneld's, and ours.
//!
//! A flag that is served has a field in [`super::RawOptions`] (a test keeps the two in step). A flag of
//! flanneld that is not built yet is accepted with flanneld's own default and refused by name otherwise.

use Kind::{Bool, Int, List, Text};

use super::go_values::{parse_bool, parse_int};

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `--flag` or `--flag=true`.
    Bool,
    /// An integer in Go's spelling.
    Int,
    /// Any text.
    Text,
    /// Any text, may be given several times.
    List,
}

/// A flag of `run`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// The name without dashes.
    pub(crate) name: &'static str,
    /// The form of its value.
    pub(crate) kind: Kind,
    /// For a flag that is not built: the only value accepted, flanneld's default.
    pub(crate) only: Option<&'static str>,
}

const fn built(name: &'static str, kind: Kind) -> Flag {
    Flag { name, kind, only: None }
}

const fn unbuilt(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    Flag { name, kind, only: Some(default) }
}

/// Every flag.
pub(crate) const FLAGS: &[Flag] = &[
    built("etcd-endpoints", Text),
    built("etcd-prefix", Text),
    built("etcd-cafile", Text),
    built("etcd-certfile", Text),
    built("etcd-keyfile", Text),
    built("etcd-username", Text),
    built("etcd-password", Text),
    built("iface", List),
    built("iface-regex", List),
    built("iface-can-reach", Text),
    built("public-ip", Text),
    built("public-ipv6", Text),
    built("subnet-file", Text),
    built("subnet-lease-renew-margin", Int),
    built("subnet-lease-ttl", Int),
    built("kube-subnet-mgr", Bool),
    built("kube-api-url", Text),
    built("kube-annotation-prefix", Text),
    built("kubeconfig-file", Text),
    built("net-config-path", Text),
    built("set-node-network-unavailable", Bool),
    built("pod-opt-out", Bool),
    built("ip-masq", Bool),
    built("ip-masq-fully-random-disable", Bool),
    built("iptables-forward-rules", Bool),
    built("iptables-resync", Int),
    built("ip-blackhole-route", Bool),
    built("unreachable-route", Bool),
    built("healthz-ip", Text),
    built("healthz-port", Int),
    built("metrics-ip", Text),
    built("metrics-port", Int),
    built("version", Bool),
    built("log-format", Text),
    built("v", Int),
    built("state-dir", Text),
    built("bpf-pin-root", Text),
    built("conntrack-liberal", Bool),
    built("strict-rules", Bool),
    built("fast-exclude", List),
    built("flow-table-size", Int),
    built("keep-capabilities", Bool),
    built("datapath", Text),
    built("guard-outer", Text),
    built("guard-inner", Text),
    built("xdp-guard", Text),
    built("nexthops-from", Int),
    built("attach", Text),
    unbuilt("vmodule", Text, ""),
    unbuilt("log_backtrace_at", Text, ""),
];

impl Flag {
    /// The flag of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FLAGS.iter().find(|flag| flag.name == name)
    }

    /// The environment variable that stands in for the flag.
    pub(crate) fn variable(&self) -> String {
        format!("FLANNELD_{}", self.name.to_uppercase().replace(['-', '.'], "_"))
    }

    /// The value in the one spelling clap takes; `None` when it is malformed.
    pub(crate) fn canonical(&self, value: &str) -> Option<String> {
        match self.kind {
            Bool => parse_bool(value).map(|value| value.to_string()),
            Int => parse_int(value).map(|value| value.to_string()),
            Text | List => Some(value.to_owned()),
        }
    }

    /// Returns the form that a value must have, for messages.
    pub(crate) fn expected(&self) -> &'static str {
        match self.kind {
            Bool => "true or false",
            Int => "a whole number",
            Text | List => "a text",
        }
    }
}
