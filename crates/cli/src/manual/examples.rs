//! The examples of each command.

/// A command line, and what it does.
pub(super) type Example = (&'static str, &'static str);

const LISTED: [Example; 1] = [(
    "flannel-agent lease list --etcd-endpoints=http://192.168.1.1:2379",
    "Print all leases, and what contradicts.",
)];

/// The name of each page, and the examples on it.
const PAGES: &[(&str, &[Example])] = &[
    (
        "flannel-agent",
        &[
            ("flannel-agent check", "See what this host supports."),
            (
                "flannel-agent run --etcd-endpoints=http://10.0.0.1:2379 --iface=eth0 --ip-masq",
                "Run the daemon.",
            ),
            ("flannel-agent status", "See lease, mode and peers."),
        ],
    ),
    (
        "flannel-agent-run",
        &[
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
    ),
    (
        "flanneld",
        &[
            (
                "flanneld -etcd-endpoints=http://10.0.0.1:2379 -iface=eth0 -ip-masq",
                "With etcd as the store.",
            ),
            (
                "flanneld -kube-subnet-mgr -ip-masq",
                "In a pod, with Kubernetes as the store.",
            ),
        ],
    ),
    (
        "flannel-agent-status",
        &[
            ("flannel-agent status", "Print the state of this node."),
            (
                "flannel-agent status --wait=2m",
                "Wait until the node is ready, at most two minutes.",
            ),
            ("flannel-agent status -o json", "The same for programs."),
        ],
    ),
    (
        "flannel-agent-maps",
        &[(
            "flannel-agent maps dump peers",
            "Print the peers as the programs see them.",
        )],
    ),
    (
        "flannel-agent-maps-dump",
        &[
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
    ),
    (
        "flannel-agent-datapath",
        &[("flannel-agent datapath show", "Print the mode in force.")],
    ),
    (
        "flannel-agent-datapath-show",
        &[(
            "flannel-agent datapath show -o json",
            "Print mode and generation.",
        )],
    ),
    (
        "flannel-agent-datapath-set",
        &[
            (
                "flannel-agent datapath set kernel",
                "Take all packets off the programs, at once.",
            ),
            (
                "flannel-agent datapath set auto",
                "Return to the mode of options and configuration.",
            ),
        ],
    ),
    (
        "flannel-agent-guard",
        &[("flannel-agent guard show", "Print the modes of the guard.")],
    ),
    (
        "flannel-agent-guard-show",
        &[("flannel-agent guard show", "Print modes and offenders.")],
    ),
    (
        "flannel-agent-guard-set",
        &[
            ("flannel-agent guard set audit", "Count, and drop nothing."),
            (
                "flannel-agent guard set enforce --only outer",
                "Drop tunnel packets from senders without a lease.",
            ),
        ],
    ),
    (
        "flannel-agent-flows",
        &[
            (
                "flannel-agent flows list",
                "See what mode fast has learned.",
            ),
            (
                "flannel-agent flows flush",
                "Let the kernel see every flow again.",
            ),
        ],
    ),
    (
        "flannel-agent-flows-list",
        &[(
            "flannel-agent flows list --src 10.244.1.5",
            "The flows of a pod, the busiest first.",
        )],
    ),
    (
        "flannel-agent-flows-flush",
        &[(
            "flannel-agent flows flush",
            "Let the kernel see every flow again.",
        )],
    ),
    (
        "flannel-agent-bugtool",
        &[(
            "flannel-agent bugtool -o report.tar.gz",
            "Write the archive for a bug report.",
        )],
    ),
    (
        "flannel-agent-check",
        &[
            (
                "flannel-agent check",
                "See what this host supports, and the remedy for what it does not.",
            ),
            ("flannel-agent check -o json", "The same for programs."),
        ],
    ),
    (
        "flannel-agent-explain",
        &[
            (
                "flannel-agent explain 10.244.1.5 10.244.2.7",
                "Follow a packet from a pod to a pod of another node.",
            ),
            (
                "flannel-agent explain 10.244.1.5 10.244.2.7 --proto udp --dport 53",
                "The same for a DNS query.",
            ),
        ],
    ),
    (
        "flannel-agent-monitor",
        &[
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
    ),
    (
        "flannel-agent-top",
        &[
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
    ),
    (
        "flannel-agent-cleanup",
        &[(
            "flannel-agent cleanup",
            "Remove everything the agent made on this node.",
        )],
    ),
    (
        "flannel-agent-prepare",
        &[(
            "flannel-agent prepare",
            "Mount the bpf filesystem, set the sysctls.",
        )],
    ),
    (
        "flannel-agent-docker-opts",
        &[(
            "flannel-agent docker-opts",
            "Write the options of the Docker daemon.",
        )],
    ),
    (
        "flannel-agent-install",
        &[(
            "flannel-agent install /flannel /opt/cni/bin/flannel",
            "Copy the CNI plugin to the host.",
        )],
    ),
    (
        "flannel-agent-completions",
        &[(
            "flannel-agent completions bash",
            "Print the script that completes this command line in bash.",
        )],
    ),
    (
        "flannel-agent-manual",
        &[(
            "flannel-agent manual /usr/share/man/man8",
            "Write these pages.",
        )],
    ),
];

/// The same for commands for a whole cluster, which run on any machine.
const CLUSTER_PAGES: &[(&str, &[Example])] = &[
    (
        "flannel-agent-cluster",
        &[(
            "flannel-agent cluster status",
            "Print the state of all nodes.",
        )],
    ),
    (
        "flannel-agent-cluster-status",
        &[
            (
                "flannel-agent cluster status --context=prod",
                "Print the state of all nodes of another cluster.",
            ),
            (
                "flannel-agent cluster status --wait=5m",
                "Wait until every node is ready, at most five minutes.",
            ),
        ],
    ),
    (
        "flannel-agent-cluster-top",
        &[
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
    ),
    (
        "flannel-agent-cluster-flows",
        &[
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
    ),
    (
        "flannel-agent-cluster-explain",
        &[
            (
                "flannel-agent cluster explain client shop/web --dport=80",
                "Follow a packet between two pods, by name.",
            ),
            (
                "flannel-agent cluster explain 10.244.1.5 10.244.2.7",
                "The same by the addresses of the pods.",
            ),
        ],
    ),
    (
        "flannel-agent-cluster-bugtool",
        &[(
            "flannel-agent cluster bugtool -o report.tar.gz",
            "Write the archives of all nodes into one.",
        )],
    ),
    (
        "flannel-agent-connectivity",
        &[
            (
                "flannel-agent connectivity test",
                "Test every pair of nodes.",
            ),
            (
                "flannel-agent connectivity hosts",
                "Without Kubernetes: on each host, test every pair of hosts.",
            ),
        ],
    ),
    (
        "flannel-agent-connectivity-hosts",
        &[
            (
                "flannel-agent connectivity hosts",
                "On each host: wait for all that have a lease, then test.",
            ),
            (
                "flannel-agent connectivity hosts --hosts=3 --modes=kernel,fast",
                "Test three hosts in two modes.",
            ),
        ],
    ),
    (
        "flannel-agent-connectivity-test",
        &[
            (
                "flannel-agent connectivity test --outside=192.0.2.200:443",
                "Test every pair of nodes, and the way out.",
            ),
            (
                "flannel-agent connectivity test --modes=kernel,fast",
                "Test in two modes, and return to those before.",
            ),
        ],
    ),
    ("flannel-agent-lease", &LISTED),
    ("flannel-agent-lease-list", &LISTED),
    (
        "flannel-agent-lease-show",
        &[(
            "flannel-agent lease show 192.168.1.12",
            "Print the lease of a node.",
        )],
    ),
    (
        "flannel-agent-lease-release",
        &[(
            "flannel-agent lease release 10.244.37.0/24",
            "Take out a node that is gone.",
        )],
    ),
];

/// The examples on a page.
pub(super) fn examples(page: &str) -> &'static [Example] {
    let mut pages = PAGES.iter().chain(CLUSTER_PAGES);
    pages
        .find(|(name, _)| *name == page)
        .map_or(&[], |(_, examples)| *examples)
}
