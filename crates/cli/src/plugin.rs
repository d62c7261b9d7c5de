//! `kubectl flannel`: kubectl runs the program `kubectl-flannel` of the search path, with the
//! arguments after the name.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::{CommandFactory as _, Parser, Subcommand};
use flannel_cluster_commands::{ClusterCommand, connectivity::ConnectivityCommand};

use super::{
    command::{Command, Once},
    exit_status,
    stop::{Stop, parsed},
};

const NAME: &str = "kubectl-flannel";

#[derive(Parser)]
#[command(name = "kubectl-flannel", bin_name = "kubectl flannel", version)]
#[command(about = "The pod network of a cluster whose nodes run flannel-agent")]
struct Plugin {
    #[command(subcommand)]
    verb: PluginVerb,
}

#[derive(Subcommand)]
enum PluginVerb {
    #[command(flatten)]
    Cluster(ClusterCommand),
    /// Test the pod network
    #[command(subcommand)]
    Connectivity(ConnectivityCommand),
}

/// Returns true if the program was called by the name that kubectl looks for.
pub(super) fn is_named(program: &OsStr) -> bool {
    Path::new(program)
        .file_name()
        .is_some_and(|name| name == NAME)
}

/// Parses the plugin's command line.
pub(super) fn parse(args: Vec<OsString>) -> Result<Command, Stop> {
    let command = exit_status::of_plugin(Plugin::command());
    let once = match parsed::<Plugin>(command, args)?.verb {
        PluginVerb::Cluster(command) => Once::Cluster(command),
        PluginVerb::Connectivity(command) => Once::Connectivity(command),
    };
    once.checked()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Stop> {
        super::super::parse(line.split(' ').map(OsString::from), [])
    }

    fn cluster(line: &str) -> ClusterCommand {
        match parsed(line).expect("a command") {
            Command::Once(Once::Cluster(command)) => command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kubectl_flannel_has_the_commands_on_a_cluster() {
        let status = cluster("/usr/local/bin/kubectl-flannel status --wait --context=x");
        assert!(matches!(status, ClusterCommand::Status(_)), "{status:?}");
        let bugtool = cluster("kubectl-flannel bugtool -o -");
        assert!(matches!(bugtool, ClusterCommand::Bugtool(_)), "{bugtool:?}");
        let test =
            parsed("kubectl-flannel connectivity test --modes=kernel,fast").expect("a command");
        assert!(
            matches!(
                test,
                Command::Once(Once::Connectivity(ConnectivityCommand::Test(_)))
            ),
            "{test:?}"
        );
        let explain = cluster("kubectl-flannel explain client shop/web -N prod --dport 80");
        assert!(matches!(explain, ClusterCommand::Explain(_)), "{explain:?}");
        let top = cluster("kubectl-flannel top --interval=5s --count 2 -o json");
        assert!(matches!(top, ClusterCommand::Top(_)), "{top:?}");
        let flows = cluster("kubectl-flannel flows --follow --count=3");
        assert!(matches!(flows, ClusterCommand::Flows(_)), "{flows:?}");
        let ports = parsed("kubectl-flannel explain a b --proto=icmp --dport=80")
            .expect_err("ports of ICMP");
        assert!(
            ports.code == 64 && ports.text.contains("has no ports"),
            "{}",
            ports.text
        );
        let wrong = parsed("kubectl-flannel cleanup").expect_err("not a command on a cluster");
        assert!(
            wrong.code == 64 && wrong.text.contains("kubectl flannel"),
            "{}",
            wrong.text
        );
        for (line, status) in [
            ("kubectl-flannel status --help", "1   a node is not ready"),
            (
                "kubectl-flannel connectivity test --help",
                "1   a check failed",
            ),
        ] {
            let help = parsed(line).expect_err("help");
            assert!(
                help.code == 0 && help.text.contains(status),
                "{line}: {}",
                help.text
            );
        }
        let same = cluster("flannel-agent cluster status");
        assert!(matches!(same, ClusterCommand::Status(_)), "{same:?}");
    }
}
