//! The legacy variant of iptables: which of its tables exist, and the tools that list them.

use std::{fs, path::PathBuf};

use flannel_host::family::Family;

use super::tool;

/// The name that tools of a family begin with.
pub const fn base(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// The tables that exist in this network namespace. Naming another one to a tool would make it.
pub fn tables(family: Family) -> Vec<String> {
    let names = match family {
        Family::V4 => "ip_tables_names",
        Family::V6 => "ip6_tables_names",
    };
    // Of the thread: the process may be in another network namespace.
    let text = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The tool that lists tables, such as `iptables-legacy-save` for `iptables`.
pub fn saver(base: &str) -> Option<PathBuf> {
    let plain = || tool::find(&format!("{base}-save")).filter(|path| !tool::is_of_nftables(path));
    tool::find(&format!("{base}-legacy-save")).or_else(plain)
}
