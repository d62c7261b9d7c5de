//! Whether this process may do what the agent does, asked before it does any of it.

use anyhow::{Context as _, bail};

/// Bit of `CAP_NET_ADMIN` in a capability set.
const NET_ADMIN: u32 = 12;

/// Fails unless this process may change the network.
pub fn check() -> anyhow::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read the process's own status")?;
    let effective = parse(&status).context("/proc/self/status shows no capabilities")?;
    if effective >> NET_ADMIN & 1 == 0 {
        bail!(
            "missing privilege CAP_NET_ADMIN (effective capabilities {effective:#x}): run as root, or grant CAP_NET_ADMIN, \
             and CAP_BPF and CAP_PERFMON for the eBPF datapath"
        );
    }
    Ok(())
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        assert_eq!(parse("Name:\tx\nCapEff:\t0000000000001000\n"), Some(1 << NET_ADMIN));
        assert_eq!(parse("Name:\tx\n"), None);
    }
}
