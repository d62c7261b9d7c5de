//! Mode `fast`.

use std::ops::RangeInclusive;

use clap::{ArgAction, Args};
use flannel_fast::{FastOptions, FastScope};

use super::{OneOf, check::Checks};
use crate::values::prefixes;

/// Below, the kernel's per-CPU shares of the table are most of it; above, it takes 200 MB of memory
/// for each family.
const FLOW_TABLE_SIZES: RangeInclusive<u32> = 1_000..=1 << 20;

const SCOPES: [&str; 2] = ["all", "cluster"];

/// The form of a value of `--fast-exclude`.
const EXCLUDED: &str = "an IP address, or a prefix such as 10.244.1.0/28";

/// Flags of mode `fast`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Mode fast")]
pub(super) struct FastFlags {
    /// Let mode `fast` set the sysctls of conntrack without which it does not replay TCP
    /// (`nf_conntrack_tcp_timeout_unacknowledged`, `nf_conntrack_tcp_timeout_max_retrans`) and
    /// conntrack forgets silent flows early (`nf_conntrack_udp_timeout`,
    /// `nf_conntrack_udp_timeout_stream`)
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    conntrack_liberal: bool,
    /// Lower mode `fast` to `encap` (`kernel` with host-gw) while firewall rules judge, count, copy
    /// or log packets one by one, or cannot be read; lower both to `kernel` while such rules are
    /// for tunnel packets that leave
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub(super) strict_rules: bool,
    /// Flows that mode `fast` learns: `all`, or `cluster` for only those between pods, without
    /// those with hosts outside the pod networks
    #[arg(
        long,
        value_name = "SCOPE",
        default_value = "all",
        value_parser = OneOf::flag(SCOPES),
        hide_possible_values = true,
    )]
    fast_scope: String,
    /// Addresses or prefixes of pods that stay out of mode `fast`, between commas; may be repeated
    #[arg(long, value_name = "IP|CIDR")]
    fast_exclude: Vec<String>,
    /// Flows of each address family mode `fast` knows at most, 1000 to 1048576, at 328 bytes each
    /// (IPv6: 400); 0 takes a thousandth of the machine's memory, 16384 to 131072, or less under a
    /// memory limit
    #[arg(
        long,
        value_name = "FLOWS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    flow_table_size: i64,
}

impl FastFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> FastOptions {
        FastOptions {
            conntrack_liberal: self.conntrack_liberal,
            strict_rules: self.strict_rules,
            scope: self.scope(checks),
            exclude: prefixes::read(checks, "fast-exclude", &self.fast_exclude, EXCLUDED),
            flow_table_size: self.flow_table_size(checks),
        }
    }

    fn scope(&self, checks: &mut Checks) -> FastScope {
        let scopes = [("all", FastScope::All), ("cluster", FastScope::Cluster)];
        checks.choice("fast-scope", &self.fast_scope, &scopes, "all or cluster")
    }

    /// The flows of each family; `None` to go by the machine's memory.
    fn flow_table_size(&self, checks: &mut Checks) -> Option<u32> {
        match u32::try_from(self.flow_table_size) {
            Ok(0) => None,
            Ok(size) if FLOW_TABLE_SIZES.contains(&size) => Some(size),
            _ => {
                checks.refuse(
                    "flow-table-size",
                    self.flow_table_size,
                    "1000 to 1048576 flows, or 0",
                );
                None
            }
        }
    }
}
