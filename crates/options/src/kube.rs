//! Kubernetes as the store.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};
use flannel_store::kube::KubeOptions;

use super::check::{Checks, OptionMistake};

/// Flags of the store, if it is Kubernetes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct KubeFlags {
    /// Take subnets and peers from Kubernetes Nodes instead of etcd
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    kube_subnet_mgr: bool,
    /// URL of the Kubernetes API server, also in place of a kubeconfig's [default: the pod's own
    /// cluster's, else the kubeconfig's]
    #[arg(
        long,
        value_name = "URL",
        default_value = "",
        hide_default_value = true
    )]
    kube_api_url: String,
    /// Prefix of our annotations on Nodes, flannel's
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "flannel.alpha.coreos.com"
    )]
    kube_annotation_prefix: String,
    /// Kubeconfig file [default: the pod's service account, else the usual places]
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    kubeconfig_file: String,
    /// File with the network configuration, instead of the key in etcd; its Subnet* keys are
    /// ignored
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "/etc/kube-flannel/net-conf.json",
    )]
    net_config_path: String,
    /// Let the Node's condition `NetworkUnavailable` follow the state of its pod network: `False`
    /// when packets can flow, `True` after 10 s in which they cannot; an outage of the API server
    /// does not count
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    set_node_network_unavailable: bool,
    /// Follow the pods of this node for the annotation `fast-path`, by which they stay out of mode
    /// `fast`; the role has to allow `pods` list and watch
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pod_opt_out: bool,
}

impl KubeFlags {
    /// `None` unless Kubernetes is the store: then its other flags have no effect.
    pub(super) fn check(&self, checks: &mut Checks) -> Option<KubeOptions> {
        if !self.kube_subnet_mgr {
            return None;
        }
        self.check_api_url(checks);
        let prefix = self.kube_annotation_prefix.parse();
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let options = KubeOptions {
            api_url: text(&self.kube_api_url),
            kubeconfig: text(&self.kubeconfig_file).map(PathBuf::from),
            prefix: prefix.clone().unwrap_or_default(),
            net_config: PathBuf::from(&self.net_config_path),
            set_network_unavailable: self.set_node_network_unavailable,
            pod_opt_out: self.pod_opt_out,
        };
        checks
            .mistakes
            .extend(prefix.err().map(OptionMistake::AnnotationPrefix));
        Some(options)
    }

    fn check_api_url(&self, checks: &mut Checks) {
        const FLAG: &str = "kube-api-url";
        let url = self.kube_api_url.as_str();
        if has_user_info(url) {
            checks.mistakes.push(OptionMistake::UserInfo {
                flag: FLAG,
                remedy: "use --kubeconfig-file for credentials",
            });
            return;
        }
        let parsed: Option<http::Uri> = checks.optional(FLAG, url, "a URL");
        if parsed.is_some_and(|parsed| parsed.scheme().is_none() || parsed.host().is_none()) {
            checks.refuse(FLAG, url, "http://host:port or https://host:port");
        }
    }
}

/// Returns true for a URL with user information, or for an invalid URL that may contain an
/// unescaped password.
fn has_user_info(text: &str) -> bool {
    match text.parse::<http::Uri>() {
        Ok(url) => url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@')),
        Err(_) => text.contains('@'),
    }
}
