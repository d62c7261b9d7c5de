//! Switches of the kernel in this network namespace.

use std::{fs, path::Path};

use flannel_backends::is_tunnel;
use flannel_host::{
    error_chain::chain,
    family::Family,
    sysctl,
    sysctl_record::{self, Record},
};
use flannel_host_sysctls as host_sysctls;
use flannel_netlink::Link;

use super::{code::HostCode, finding::Finding, network::is_flannels};

pub(super) fn look(links: &[Link], state_dir: &Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Family::BOTH.into_iter().map(forwarding).collect();
    findings.extend(
        links
            .iter()
            .filter(|link| is_tunnel(link))
            .filter_map(own_device),
    );
    findings.push(bridges());
    findings.push(changed(state_dir));
    let strict: Vec<&str> = links
        .iter()
        .filter(|link| is_flannels(link) && is_strict(&link.name))
        .map(|link| link.name.as_str())
        .collect();
    findings.push(if strict.is_empty() {
        Finding::ok(
            "rp_filter",
            "no tunnel device refuses senders by their address",
        )
    } else {
        Finding::warn(
            HostCode::StrictRpFilter,
            format!("rp_filter is strict on {}", strict.join(", ")),
            "packets whose source another device leads to, as from addresses of nodes, are \
             dropped; a running agent sets it to 2 (loose)",
        )
    });
    findings
}

/// The sysctls an agent changed, with the values before.
fn changed(state_dir: &Path) -> Finding {
    let record = match Record::load(state_dir) {
        Ok(record) => record,
        Err(error) => {
            let remedy = format!(
                "cleanup restores none; the agent repairs {} when it starts, and keeps the damaged \
                 file",
                sysctl_record::path(state_dir).display()
            );
            return Finding::warn(HostCode::SysctlRecord, chain(&error), remedy);
        }
    };
    let changed = record
        .changed()
        .iter()
        .map(|changed| format!("{} {} -> {}", changed.name, changed.before, changed.set));
    match changed.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => Finding::ok("sysctls", "the agent changed none"),
        all => Finding::ok(
            "sysctls",
            format!("the agent changed {all}; cleanup sets them back"),
        ),
    }
}

fn forwarding(family: Family) -> Finding {
    let setting = sysctl::forwarding(family);
    let name = setting.replace('/', ".");
    match (sysctl::is_on(setting), family) {
        (true, _) => Finding::ok("forwarding", format!("{name} is 1")),
        (false, Family::V4) => Finding::fail(
            HostCode::Forwarding,
            format!("{name} is not 1"),
            format!("sysctl -w {name}=1, or no pod reaches another node"),
        ),
        (false, Family::V6) => Finding::warn(
            HostCode::Forwarding,
            format!("{name} is not 1"),
            format!("with IPv6 pods: sysctl -w {name}=1"),
        ),
    }
}

/// The switches of a tunnel device; `None` if they are as they should be. A running agent sets
/// them.
fn own_device(link: &Link) -> Option<Finding> {
    let family = if link.name.contains("-v6") {
        Family::V6
    } else {
        Family::V4
    };
    let (name, needed) = host_sysctls::of_tunnel(family, &link.name);
    let value = sysctl_record::read(&name)
        .ok()
        .flatten()
        .filter(|value| *value != needed)?;
    Some(Finding::fail(
        HostCode::TunnelSysctl,
        format!(
            "{name} is {value}: {} carries no packets of pods",
            link.name
        ),
        format!("sysctl -w {name}={needed}"),
    ))
}

fn bridges() -> Finding {
    let name = sysctl::bridge_filtering(Family::V4);
    if sysctl::is_on(name) {
        return Finding::ok("br_netfilter", "bridges show their packets to iptables");
    }
    Finding::warn(
        HostCode::BridgeFiltering,
        format!("{} is not 1", name.replace('/', ".")),
        "with Services by iptables: modprobe br_netfilter, or a pod gets no answer from a Service \
         that leads to a pod of its own node",
    )
}

/// The stricter one of the device's own setting and that for all holds.
fn is_strict(device: &str) -> bool {
    let value = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok()
            .and_then(|text| text.trim().parse::<u8>().ok())
            .unwrap_or(0)
    };
    value("all").max(value(device)) == 1
}
