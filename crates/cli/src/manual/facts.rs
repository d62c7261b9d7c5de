//! Examples, files, exit status and related tools of each command.

use super::examples::examples;
use crate::{
    exit_status::{EXIT_STATUSES, WRONG_USAGE},
    stop::USAGE,
};

/// A term and its meaning.
type Term = (&'static str, &'static str);

/// The parts of a page that `--help` does not have.
#[derive(Debug)]
pub(super) struct Facts {
    /// Command lines, each with what it does.
    pub(super) examples: &'static [Term],
    pub(super) files: Vec<Term>,
    pub(super) exit: Vec<(String, String)>,
    /// Pages of other programs.
    pub(super) tools: &'static [&'static str],
}

const STATE: Term = (
    "/run/flannel",
    "State directory: the agent's socket (agent.sock), its lock and its records.",
);
const SUBNET_ENV: Term = (
    "/run/flannel/subnet.env",
    "Subnet, MTU and masquerade of this node, for the CNI plugin.",
);
const PINS: Term = (
    "/sys/fs/bpf/flannel",
    "Pinned maps, programs and links. They outlive the agent.",
);
const NET_CONF: Term = (
    "/etc/kube-flannel/net-conf.json",
    "Network configuration, with Kubernetes as the store.",
);
const SETTINGS: Term = (
    "/etc/default/flannel-agent",
    "Variables of the systemd unit, in the Debian package.",
);
const KUBECONFIG: Term = (
    "~/.kube/config",
    "The cluster and the credentials, unless --kubeconfig or the variable KUBECONFIG names another \
     file, or the \
     command runs in a pod.",
);
const NO_FILES: Term = (
    "None",
    "This command reads and writes no file but those that are named in its arguments.",
);

/// Pages that belong together.
pub(super) const SUBJECTS: [&[&str]; 8] = [
    &["flannel-agent", "flannel-agent-run", "flanneld"],
    &[
        "flannel-agent-status",
        "flannel-agent-check",
        "flannel-agent-top",
        "flannel-agent-bugtool",
    ],
    &[
        "flannel-agent-explain",
        "flannel-agent-monitor",
        "flannel-agent-maps-dump",
        "flannel-agent-top",
    ],
    &[
        "flannel-agent-cluster-status",
        "flannel-agent-cluster-top",
        "flannel-agent-cluster-flows",
        "flannel-agent-cluster-explain",
        "flannel-agent-cluster-bugtool",
        "flannel-agent-connectivity-test",
        "flannel-agent-explain",
    ],
    &[
        "flannel-agent-connectivity-hosts",
        "flannel-agent-explain",
        "flannel-agent-status",
    ],
    &[
        "flannel-agent-datapath-set",
        "flannel-agent-guard-set",
        "flannel-agent-flows-flush",
    ],
    &[
        "flannel-agent-flows-list",
        "flannel-agent-cluster-flows",
        "flannel-agent-maps-dump",
        "flannel-agent-top",
    ],
    &[
        "flannel-agent-prepare",
        "flannel-agent-install",
        "flannel-agent-cleanup",
        "flannel-agent-docker-opts",
    ],
];

/// The facts about the command with this page.
pub(super) fn facts(page: &str) -> Facts {
    Facts {
        examples: examples(page),
        files: files(page),
        exit: exit(page),
        tools: tools(page),
    }
}

fn files(page: &str) -> Vec<Term> {
    match page {
        "flannel-agent" | "flannel-agent-run" | "flanneld" => {
            vec![STATE, SUBNET_ENV, PINS, NET_CONF, SETTINGS]
        }
        "flannel-agent-cleanup" | "flannel-agent-bugtool" | "flannel-agent-connectivity-hosts" => {
            vec![STATE, SUBNET_ENV, PINS]
        }
        "flannel-agent-docker-opts" => vec![SUBNET_ENV],
        "flannel-agent-install" | "flannel-agent-completions" | "flannel-agent-manual" => {
            vec![NO_FILES]
        }
        "flannel-agent-prepare" | "flannel-agent-monitor" => vec![PINS],
        page if is_of_cluster(page) => vec![KUBECONFIG],
        page if page.starts_with("flannel-agent-lease") => vec![NO_FILES],
        _ => vec![STATE, PINS],
    }
}

/// The statuses of a command, or those of a group of commands.
fn exit(page: &str) -> Vec<(String, String)> {
    let words = if page == "flanneld" {
        "run"
    } else {
        page.trim_start_matches("flannel-agent")
            .trim_start_matches('-')
    };
    let row = EXIT_STATUSES
        .iter()
        .find(|row| row.command.replace(' ', "-") == words);
    let terms = row.map_or_else(
        || {
            vec![
                ("0, 1, 2".to_owned(), "those of the command".to_owned()),
                (USAGE.to_string(), WRONG_USAGE.to_owned()),
            ]
        },
        |row| {
            row.terms()
                .map(|(code, meaning)| (code.to_string(), meaning.to_owned()))
                .collect()
        },
    );
    terms
        .into_iter()
        .map(|(codes, meaning)| (codes, sentence(&meaning)))
        .collect()
}

/// A part of a sentence as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    format!(
        "{}{}.",
        first.map(String::from).unwrap_or_default(),
        letters.as_str()
    )
}

/// Returns true for the commands that go through the API server.
fn is_of_cluster(page: &str) -> bool {
    ["flannel-agent-cluster", "flannel-agent-connectivity"]
        .iter()
        .any(|name| page.starts_with(name))
}

fn tools(page: &str) -> &'static [&'static str] {
    match page {
        "flannel-agent-connectivity-hosts" => &["ip(8)", "bridge(8)"],
        page if is_of_cluster(page) => &["kubectl(1)"],
        "flannel-agent" | "flannel-agent-run" | "flanneld" => {
            &["ip(8)", "bpftool(8)", "nft(8)", "systemctl(1)"]
        }
        "flannel-agent-monitor" => &["tcpdump(1)"],
        "flannel-agent-maps" | "flannel-agent-maps-dump" => &["bpftool-map(8)", "bridge(8)"],
        "flannel-agent-explain" => &["ip-route(8)", "bridge(8)", "nft(8)"],
        "flannel-agent-status" | "flannel-agent-top" => &["ip(8)", "conntrack(8)"],
        _ => &[],
    }
}
