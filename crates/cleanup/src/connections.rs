//! Number of TCP connections of pods that conntrack lists as alive: from `/proc/net/nf_conntrack`,
//! or by ctnetlink where this kernel does not have the file (`CONFIG_NF_CONNTRACK_PROCFS`).

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead as _, BufReader},
    net::IpAddr,
};

use flannel_netfilter::ConntrackTable;
use ipnet::IpNet;

/// Of the network namespace of the calling thread.
const PROC: &str = "/proc/thread-self/net/nf_conntrack";

/// States in which data may still come: a connection that is closed on one side goes on for as long
/// as the other one sends.
const ALIVE: [&str; 3] = ["ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT"];

/// Words of a connection whose packets a flowtable forwards: neither timeout nor state is shown.
const OFFLOADED: [&str; 2] = ["[OFFLOAD]", "[HW_OFFLOAD]"];

/// TCP connections that are alive and have an address in one of these networks, before or after
/// translation.
pub(super) fn alive(networks: &BTreeSet<IpNet>) -> io::Result<usize> {
    match alive_in_proc(networks) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => alive_by_netlink(networks),
        count => count,
    }
}

/// The same from the file.
pub fn alive_in_proc(networks: &BTreeSet<IpNet>) -> io::Result<usize> {
    let mut count = 0;
    for line in BufReader::new(File::open(PROC)?).lines() {
        count += usize::from(is_alive(&line?, networks));
    }
    Ok(count)
}

/// The same by netlink.
pub fn alive_by_netlink(networks: &BTreeSet<IpNet>) -> io::Result<usize> {
    let mut count = 0;
    ConntrackTable::open()?.alive_in(networks, |_| count += 1)?;
    Ok(count)
}

fn is_in(networks: &BTreeSet<IpNet>, address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Returns true for a line about such a connection:
/// `ipv4     2 tcp      6 431999 ESTABLISHED src=10.244.1.2 dst=10.96.0.1 sport=41830 ...`.
fn is_alive(line: &str, networks: &BTreeSet<IpNet>) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let is_in_state = words.get(5).is_some_and(|state| ALIVE.contains(state));
    let is_offloaded = words.iter().any(|word| OFFLOADED.contains(word));
    let alive = words.get(2) == Some(&"tcp") && (is_in_state || is_offloaded);
    let address = |word: &&str| {
        word.strip_prefix("src=")
            .or_else(|| word.strip_prefix("dst="))?
            .parse()
            .ok()
    };
    alive
        && words
            .iter()
            .filter_map(address)
            .any(|address| is_in(networks, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks() -> BTreeSet<IpNet> {
        ["10.244.0.0/16", "fd00:244::/48"]
            .map(|network| network.parse().expect("a network"))
            .into()
    }

    #[test]
    fn living_connections_of_pods_are_recognised_by_their_line() {
        for (line, expected) in [
            (
                "ipv4     2 tcp      6 431999 ESTABLISHED src=10.244.1.2 dst=10.96.0.1 sport=4 \
                 dport=80 src=10.244.2.2 \
                 dst=10.244.1.2 sport=8080 dport=4 [ASSURED] mark=0 zone=0 use=2",
                true,
            ),
            (
                "ipv4     2 tcp      6 60 CLOSE_WAIT src=192.0.2.1 dst=192.0.2.9 sport=4 dport=80 \
                 src=10.244.2.2 \
                 dst=192.0.2.1 sport=8080 dport=4 mark=0 use=2",
                true,
            ),
            (
                "ipv6     10 tcp      6 431999 ESTABLISHED src=fd00:244:0:1::2 dst=2001:db8::1 \
                 sport=4 dport=80 \
                 src=2001:db8::1 dst=fd00:244:0:1::2 sport=80 dport=4 [ASSURED] use=2",
                true,
            ),
            (
                "ipv4     2 tcp      6 100 TIME_WAIT src=10.244.1.2 dst=10.96.0.1 sport=4 dport=80 \
                 src=10.244.2.2 \
                 dst=10.244.1.2 sport=8080 dport=4 [ASSURED] use=2",
                false,
            ),
            (
                "ipv4     2 tcp      6 431999 ESTABLISHED src=192.0.2.1 dst=192.0.2.9 sport=4 \
                 dport=22 src=192.0.2.9 \
                 dst=192.0.2.1 sport=22 dport=4 [ASSURED] use=2",
                false,
            ),
            (
                "ipv4     2 udp      17 29 src=10.244.1.2 dst=10.96.0.10 sport=4 dport=53 \
                 src=10.244.2.2 dst=10.244.1.2 \
                 sport=53 dport=4 use=2",
                false,
            ),
            (
                "ipv4     2 tcp      6 src=10.244.1.2 dst=10.96.0.1 sport=4 dport=80 \
                 src=10.244.2.2 dst=10.244.1.2 \
                 sport=8080 dport=4 [OFFLOAD] mark=0 zone=0 use=3",
                true,
            ),
            (
                "ipv4     2 udp      17 src=10.244.1.2 dst=10.96.0.10 sport=4 dport=53 \
                 src=10.244.2.2 dst=10.244.1.2 \
                 sport=53 dport=4 [OFFLOAD] use=3",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_alive(line, &networks()), expected, "{line}");
        }
    }
}
