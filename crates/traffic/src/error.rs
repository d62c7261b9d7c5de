//! Errors of the traffic rules.

use flannel_firewall_tools::ToolError;
use flannel_netlink::NetlinkError;

/// A rule or route that could not be read, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A tool is not installed.
    #[error("{tool} is not installed here; install the package {package} or {instead}")]
    Missing {
        /// The command.
        tool: &'static str,
        /// The package that has it on most distributions.
        package: &'static str,
        /// The package of the other engine, which does as well.
        instead: &'static str,
    },
    /// A tool could not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The table holds rules that only nft understands, so the agent cannot determine which of our
    /// rules exist.
    #[error(
        "iptables cannot read its table {table}, because nft put rules of its own there; move \
         those to another table"
    )]
    Incompatible {
        /// The table.
        table: &'static str,
    },
    /// The rules that are read back differ from those that were written.
    #[error(
        "{what} does not read back as it was written: another process changes it at the same time, \
         or the tool is too new or too old"
    )]
    NotKept {
        /// The chains.
        what: String,
    },
    /// The blackhole route.
    #[error("{0}: {fault}", fault = .0.fault)]
    Route(#[source] NetlinkError),
}

impl TrafficError {
    /// True if the tool ran, and the kernel or the tool itself refused its work.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Tool(ToolError::Refused { .. }))
    }
}
