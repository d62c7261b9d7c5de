//! Examples, files, exit status and related tools of each command.

use crate::cli::{EXIT_STATUSES, USAGE, WRONG_USAGE};

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

fn examples(page: &str) -> &'static [Term] {
    match page {
        "flannel-agent" => &[
            ("flannel-agent check", "See what this host supports."),
            (
                "flannel-agent run --etcd-endpoints=http://10.0.0.1:2379 --iface=eth0 --ip-masq",
                "Run the daemon.",
            ),
            ("flannel-agent status", "See lease, mode and peers."),
        ],
        "flannel-agent-run" => &[
            (
                "flannel-agent run --etcd-endpoints=http://10.0.0.1:2379 --iface=eth0 --ip-masq",
                "With etcd as the store.",
            ),
            (
                "flannel-agent run --kube-subnet-mgr --ip-masq",
                "In a pod, with Kubernetes as the store.",
            ),
            (
                "flannel-agent run --datapath=kernel",
                "Without eBPF on the path of packets.",
            ),
        ],
        "flanneld" => &[
            (
                "flanneld -etcd-endpoints=http://10.0.0.1:2379 -iface=eth0 -ip-masq",
                "With etcd as the store.",
            ),
            (
                "flanneld -kube-subnet-mgr -ip-masq",
                "In a pod, with Kubernetes as the store.",
            ),
        ],
        "flannel-agent-status" => &[
            ("flannel-agent status", "Print the state of this node."),
            (
                "flannel-agent status --wait=2m",
                "Wait until the node is ready, at most two minutes.",
            ),
            ("flannel-agent status -o json", "The same for programs."),
        ],
        "flannel-agent-maps" => &[(
            "flannel-agent maps dump peers",
            "Print the peers as the programs see them.",
        )],
        "flannel-agent-maps-dump" => &[
            (
                "flannel-agent maps dump peers",
                "Print the peers as the programs see them.",
            ),
            (
                "flannel-agent maps dump flows --src 10.244.1.5",
                "Print the known flows of one pod.",
            ),
            (
                "flannel-agent maps dump --diff",
                "Compare leases, maps and kernel.",
            ),
        ],
        "flannel-agent-datapath" => &[("flannel-agent datapath show", "Print the mode in force.")],
        "flannel-agent-datapath-show" => &[(
            "flannel-agent datapath show -o json",
            "Print mode and generation.",
        )],
        "flannel-agent-datapath-set" => &[
            (
                "flannel-agent datapath set kernel",
                "Take all packets off the programs, at once.",
            ),
            (
                "flannel-agent datapath set auto",
                "Return to the mode of options and configuration.",
            ),
        ],
        "flannel-agent-guard" => &[("flannel-agent guard show", "Print the modes of the guard.")],
        "flannel-agent-guard-show" => &[("flannel-agent guard show", "Print modes and offenders.")],
        "flannel-agent-guard-set" => &[
            ("flannel-agent guard set audit", "Count, and drop nothing."),
            (
                "flannel-agent guard set enforce --only outer",
                "Drop tunnel packets from senders without a lease.",
            ),
        ],
        "flannel-agent-flows" => &[
            (
                "flannel-agent flows list",
                "See what mode fast has learned.",
            ),
            (
                "flannel-agent flows flush",
                "Let the kernel see every flow again.",
            ),
        ],
        "flannel-agent-flows-list" => &[(
            "flannel-agent flows list --src 10.244.1.5",
            "The flows of a pod, the busiest first.",
        )],
        "flannel-agent-flows-flush" => &[(
            "flannel-agent flows flush",
            "Let the kernel see every flow again.",
        )],
        "flannel-agent-bugtool" => &[(
            "flannel-agent bugtool -o report.tar.gz",
            "Write the archive for a bug report.",
        )],
        "flannel-agent-check" => &[
            (
                "flannel-agent check",
                "See what this host supports, and the remedy for what it does not.",
            ),
            ("flannel-agent check -o json", "The same for programs."),
        ],
        "flannel-agent-explain" => &[
            (
                "flannel-agent explain 10.244.1.5 10.244.2.7",
                "Follow a packet from a pod to a pod of another node.",
            ),
            (
                "flannel-agent explain 10.244.1.5 10.244.2.7 --proto udp --dport 53",
                "The same for a DNS query.",
            ),
        ],
        "flannel-agent-monitor" => &[
            (
                "flannel-agent monitor --drops",
                "Show the packets that are dropped.",
            ),
            (
                "flannel-agent monitor --src 10.244.1.5 --count 20",
                "Show twenty packets of one pod.",
            ),
            (
                "flannel-agent monitor -w packets.pcapng",
                "Write packets for tcpdump or Wireshark.",
            ),
        ],
        "flannel-agent-top" => &[
            ("flannel-agent top", "Show rates live, until q."),
            (
                "flannel-agent top --once --interval 5s",
                "Print the rates of the next five seconds.",
            ),
            (
                "flannel-agent top --sort packets",
                "Show the flows with the most packets first.",
            ),
        ],
        "flannel-agent-cleanup" => &[(
            "flannel-agent cleanup",
            "Remove everything the agent made on this node.",
        )],
        "flannel-agent-prepare" => &[(
            "flannel-agent prepare",
            "Mount the bpf filesystem, set the sysctls.",
        )],
        "flannel-agent-docker-opts" => &[(
            "flannel-agent docker-opts",
            "Write the options of the Docker daemon.",
        )],
        "flannel-agent-install" => &[(
            "flannel-agent install /flannel /opt/cni/bin/flannel",
            "Copy the CNI plugin to the host.",
        )],
        "flannel-agent-completions" => &[(
            "flannel-agent completions bash",
            "Print the script that completes this command line in bash.",
        )],
        "flannel-agent-manual" => &[(
            "flannel-agent manual /usr/share/man/man8",
            "Write these pages.",
        )],
        _ => examples_elsewhere(page),
    }
}

/// Of commands for a whole cluster, which run on any machine.
fn examples_elsewhere(page: &str) -> &'static [Term] {
    match page {
        "flannel-agent-cluster" => &[(
            "flannel-agent cluster status",
            "Print the state of all nodes.",
        )],
        "flannel-agent-cluster-status" => &[
            (
                "flannel-agent cluster status --context=prod",
                "Print the state of all nodes of another cluster.",
            ),
            (
                "flannel-agent cluster status --wait=5m",
                "Wait until every node is ready, at most five minutes.",
            ),
        ],
        "flannel-agent-cluster-top" => &[
            (
                "flannel-agent cluster top",
                "Show the busiest nodes, pairs and flows live, until q.",
            ),
            (
                "flannel-agent cluster top --count=1 --interval=5s",
                "Print the rates of the next five seconds.",
            ),
            (
                "flannel-agent cluster top -o json",
                "Print a document for each interval.",
            ),
        ],
        "flannel-agent-cluster-flows" => &[
            (
                "flannel-agent cluster flows",
                "Print the busiest flows of all nodes.",
            ),
            (
                "flannel-agent cluster flows -N shop --service=shop/db",
                "Print those of a Service and of a namespace.",
            ),
            (
                "flannel-agent cluster flows -f --verdict=dropped",
                "Print dropped packets of all nodes as they happen.",
            ),
        ],
        "flannel-agent-cluster-explain" => &[
            (
                "flannel-agent cluster explain client shop/web --dport=80",
                "Follow a packet between two pods, by name.",
            ),
            (
                "flannel-agent cluster explain 10.244.1.5 10.244.2.7",
                "The same by the addresses of the pods.",
            ),
        ],
        "flannel-agent-cluster-bugtool" => &[(
            "flannel-agent cluster bugtool -o report.tar.gz",
            "Write the archives of all nodes into one.",
        )],
        "flannel-agent-connectivity" => &[
            (
                "flannel-agent connectivity test",
                "Test every pair of nodes.",
            ),
            (
                "flannel-agent connectivity hosts",
                "Without Kubernetes: on each host, test every pair of hosts.",
            ),
        ],
        "flannel-agent-connectivity-hosts" => &[
            (
                "flannel-agent connectivity hosts",
                "On each host: wait for all that have a lease, then test.",
            ),
            (
                "flannel-agent connectivity hosts --hosts=3 --modes=kernel,fast",
                "Test three hosts in two modes.",
            ),
        ],
        "flannel-agent-connectivity-test" => &[
            (
                "flannel-agent connectivity test --outside=192.0.2.200:443",
                "Test every pair of nodes, and the way out.",
            ),
            (
                "flannel-agent connectivity test --modes=kernel,fast",
                "Test in two modes, and return to those before.",
            ),
        ],
        "flannel-agent-lease" | "flannel-agent-lease-list" => &[(
            "flannel-agent lease list --etcd-endpoints=http://192.168.1.1:2379",
            "Print all leases, and what contradicts.",
        )],
        "flannel-agent-lease-show" => &[(
            "flannel-agent lease show 192.168.1.12",
            "Print the lease of a node.",
        )],
        "flannel-agent-lease-release" => &[(
            "flannel-agent lease release 10.244.37.0/24",
            "Take out a node that is gone.",
        )],
        _ => &[],
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
