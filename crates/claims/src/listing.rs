//! The claims of all agents of this network namespace, from the kernel's list of sockets.

use std::{fs, io};

use ipnet::IpNet;

/// The start of the name of each claim.
pub(super) const PREFIX: &str = "flannel-agent/";
/// The start of the name of a claim to a pod network.
pub(super) const NETWORKS: &str = "flannel-agent/network/";
/// The sockets of this network namespace. An abstract name has `@` for its first byte.
const SOCKETS: &str = "/proc/net/unix";

/// The pod networks of other agents that run in this network namespace.
pub fn networks_of_others(own: &[IpNet]) -> io::Result<Vec<IpNet>> {
    let sockets = fs::read(SOCKETS)?;
    Ok(networks(&String::from_utf8_lossy(&sockets))
        .filter(|network| !own.contains(network))
        .collect())
}

/// The names of claims of all agents.
pub(super) fn names() -> io::Result<Vec<String>> {
    let sockets = fs::read(SOCKETS)?;
    let mut names: Vec<String> = claims(&String::from_utf8_lossy(&sockets))
        .map(str::to_owned)
        .collect();
    // Each connection to a listening socket has its name, too.
    names.sort();
    names.dedup();
    Ok(names)
}

fn networks(sockets: &str) -> impl Iterator<Item = IpNet> {
    claims(sockets).filter_map(|name| name.strip_prefix(NETWORKS)?.parse().ok())
}

/// Names of claims in the text of [`SOCKETS`].
fn claims(sockets: &str) -> impl Iterator<Item = &str> {
    sockets
        .lines()
        .filter_map(|line| Some(line.split_once(" @")?.1))
        .filter(|name| name.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_by_their_name() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 27 \
             /run/flannel-agent/network/10.1.0.0/16\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 28 \
             @flannel-agent/network/10.244.0.0/16\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 29 \
             @flannel-agent/device/flannel.1\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 30 @flannel-agent/network/no \
             network\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 31 @other/network/10.3.0.0/16\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 32\n";
        assert_eq!(claims(sockets).count(), 3);
        let expected: Vec<IpNet> = vec!["10.244.0.0/16".parse().expect("a network")];
        assert_eq!(networks(sockets).collect::<Vec<_>>(), expected);
    }
}
