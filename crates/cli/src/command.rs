//! The commands that a command line may ask for.

use clap::Subcommand;
use flannel_cluster_commands::{self as cluster, connectivity, lease};
use flannel_node_commands::{
    check, datapath, explain, flows, guard, maps, monitor, status, top, udp,
};
use flannel_options::RunOptions;
use flannel_setup_commands::{cleanup, docker_opts, install, prepare};

use super::{
    bugtool::BugtoolOptions, generate::CompletionOptions, manual::ManualOptions, stop::Stop,
};

/// The command that the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Run the daemon.
    Run(Box<RunOptions>),
    /// Look or tidy up, print, and end.
    Once(Once),
}

/// The subcommands that do without an agent's work: they look or tidy up, and end.
#[derive(Debug, Subcommand)]
pub enum Once {
    /// Print the state of this node: lease, peers, datapath mode, and what is wrong
    Status(status::StatusOptions),
    /// Look into the BPF maps
    #[command(subcommand)]
    Maps(maps::MapsCommand),
    /// Print or set the datapath mode
    #[command(subcommand)]
    Datapath(datapath::DatapathCommand),
    /// Print or set what is done about tunnel packets that come from no peer
    #[command(subcommand)]
    Guard(guard::GuardCommand),
    /// Print the flows of this node with names, once or live, as `flows list` does, or discard what
    /// mode `fast` has learned
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// Write one archive for a bug report; passwords, tokens and keys are left out
    Bugtool(BugtoolOptions),
    /// Say what this host can do and what stands in the way; needs no agent
    Check(check::CheckOptions),
    /// Show what would happen to a packet on this node, and why
    Explain(explain::ExplainOptions),
    /// Show packets as the programs see them, live: which program, what became of them and why
    Monitor(monitor::MonitorOptions),
    /// Show rates live: peers, flows, the share of the fast path, drops; needs no agent
    Top(top::TopOptions),
    /// Look at all nodes of a Kubernetes cluster, through kubeconfig
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Test the pod network of a Kubernetes cluster, through kubeconfig
    #[command(subcommand)]
    Connectivity(connectivity::ConnectivityCommand),
    /// List, show and release the leases of nodes in etcd
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Remove everything the agent made on this node; refuses while it runs. The lease in the store
    /// and subnet.env stay
    Cleanup(cleanup::CleanupOptions),
    /// Do for an agent what it may not: mount the bpf filesystem and set the sysctls mode `fast`
    /// needs, in an init container
    Prepare(prepare::PrepareOptions),
    /// Write the options of the Docker daemon that subnet.env asks for, as mk-docker-opts.sh does
    DockerOpts(docker_opts::DockerOptions),
    /// Copy a file atomically to where others look for it, such as the CNI plugin to the host
    Install(install::InstallOptions),
    /// Print what lets a shell complete this command line
    Completions(CompletionOptions),
    /// Write the manual pages
    Manual(ManualOptions),
    /// Carry the packets of the backend udp; the agent starts it
    #[command(hide = true)]
    UdpTunnel(udp::UdpTunnelOptions),
}

impl Once {
    /// The command, unless its arguments do not go together.
    pub(super) fn checked(self) -> Result<Command, Stop> {
        let mistake = self
            .mistake()
            .map(|text| Stop::usage(&format!("error: {text}\n")));
        mistake.map_or(Ok(Command::Once(self)), Err)
    }

    /// Returns the mistake that the parser cannot detect, if there is one: arguments that do not go
    /// together.
    fn mistake(&self) -> Option<String> {
        match self {
            Self::Maps(command) => maps::mistake(command),
            Self::Explain(options) => explain::mistake(options),
            Self::Flows(command) => flows::mistake(command),
            Self::Cluster(command) => cluster::mistake(command),
            _ => None,
        }
    }
}
