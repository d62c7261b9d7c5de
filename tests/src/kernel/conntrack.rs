//! Conntrack's table of a host: what it knows, and how it is made to forget.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    libc,
    sys::socket::{MsgFlags, recv},
};

use crate::{
    Host,
    kernel::nfnetlink::{self, attribute, nested},
    load::rr::Protocol,
};

/// Between whom: as what a packet enters, or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// From where.
    pub source: SocketAddr,
    /// The destination.
    pub destination: SocketAddr,
}

impl Tuple {
    /// The way back.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            source: self.destination,
            destination: self.source,
        }
    }
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its packets as they enter.
    pub original: Tuple,
    /// Its answers as they enter.
    pub reply: Tuple,
    /// Of TCP.
    pub state: Option<String>,
    /// Seconds until it is forgotten if nothing more comes. The kernel does not show it where a
    /// flowtable forwards the packets, and then this is the largest number.
    pub timeout: u64,
    /// A flowtable forwards its packets.
    pub is_offloaded: bool,
}

impl Connection {
    /// Returns true if the connection is between these ends, on either side of a translation.
    pub fn is_between(&self, client: SocketAddr, server: SocketAddr) -> bool {
        self.original.source == client
            && (self.original.destination == server || self.reply.source == server)
    }
}

/// Connections of TCP and UDP a host knows.
pub fn table(host: &Host) -> Result<Vec<Connection>> {
    let text = host.sh("cat /proc/net/nf_conntrack")?.stdout;
    text.lines()
        .filter_map(|line| parse(line).with_context(|| line.to_owned()).transpose())
        .collect()
}

/// As what a packet that enters as the key leaves.
pub fn translations(connections: &[Connection]) -> HashMap<Tuple, Tuple> {
    let both = |of: &Connection| {
        [
            (of.original, of.reply.reversed()),
            (of.reply, of.original.reversed()),
        ]
    };
    connections.iter().flat_map(both).collect()
}

/// Makes a host forget every connection that is `meant`, as kube-proxy does where a backend went;
/// how many.
pub fn forget(host: &Host, meant: impl Fn(&Connection) -> bool) -> Result<usize> {
    let mut connections = table(host)?;
    connections.retain(meant);
    host.enter(|| {
        connections
            .iter()
            .try_for_each(|connection| delete(&connection.original))
    })??;
    Ok(connections.len())
}

/// The sources, destinations, source ports and destination ports in the words of a line of
/// `/proc/net/nf_conntrack`, one of each for each direction.
pub(crate) fn ends<'a>(words: &[&'a str]) -> [Vec<&'a str>; 4] {
    ["src=", "dst=", "sport=", "dport="].map(|name| values(words, name).collect())
}

/// The values of this name in the words of such a line.
pub(crate) fn values<'a>(words: &[&'a str], name: &str) -> impl Iterator<Item = &'a str> {
    words.iter().filter_map(move |word| word.strip_prefix(name))
}

/// `ipv4     2 udp      17 29 src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2 [UNREPLIED] src=10.0.0.2
/// ...`; `None` for protocols without ports.
fn parse(line: &str) -> Result<Option<Connection>> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let protocol = match words.get(2) {
        Some(&"tcp") => Protocol::Tcp,
        Some(&"udp") => Protocol::Udp,
        _ => return Ok(None),
    };
    let [sources, destinations, from, to] = ends(&words);
    let tuple = |place: usize| -> Result<Tuple> {
        let end = |addresses: &[&str], ports: &[&str]| -> Result<SocketAddr> {
            let address: IpAddr = addresses
                .get(place)
                .context("an address is missing")?
                .parse()?;
            Ok(SocketAddr::new(
                address,
                ports.get(place).context("a port is missing")?.parse()?,
            ))
        };
        Ok(Tuple {
            protocol,
            source: end(&sources, &from)?,
            destination: end(&destinations, &to)?,
        })
    };
    let state = words
        .get(5)
        .filter(|word| !word.contains('='))
        .map(|word| (*word).to_owned());
    let is_offloaded = words
        .iter()
        .any(|word| ["[OFFLOAD]", "[HW_OFFLOAD]"].contains(word));
    let timeout = if is_offloaded {
        u64::MAX
    } else {
        words.get(4).context("no timeout")?.parse()?
    };
    Ok(Some(Connection {
        original: tuple(0)?,
        reply: tuple(1)?,
        state,
        timeout,
        is_offloaded,
    }))
}

// linux/netfilter/nfnetlink_conntrack.h.
const DELETE: u16 = 1 << 8 | 2;
const TUPLE_ORIG: u16 = 1;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;

fn delete(original: &Tuple) -> Result<()> {
    let number: u8 = match original.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    };
    let proto = nested(
        TUPLE_PROTO,
        &[
            attribute(1, &[number]),
            attribute(2, &original.source.port().to_be_bytes()),
            attribute(3, &original.destination.port().to_be_bytes()),
        ],
    );
    let (family, ip) = match (original.source.ip(), original.destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (
            libc::AF_INET,
            [attribute(1, &from.octets()), attribute(2, &to.octets())],
        ),
        (IpAddr::V6(from), IpAddr::V6(to)) => (
            libc::AF_INET6,
            [attribute(3, &from.octets()), attribute(4, &to.octets())],
        ),
        _ => anyhow::bail!("{original:?} is of two families"),
    };
    let tuple = nested(TUPLE_ORIG, &[nested(TUPLE_IP, &ip), proto]);
    let socket = nfnetlink::open()?;
    nfnetlink::send(
        &socket,
        DELETE,
        libc::NLM_F_ACK,
        u8::try_from(family)?,
        &tuple,
    )?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // struct nlmsghdr, then the error number, negative.
    let error = answer[..length]
        .get(16..20)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    // What was gone already is as good.
    ensure!(
        matches!(error, Some(0 | -2)),
        "forgetting {original:?}: {error:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() -> Result<()> {
        let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.244.1.2 dst=10.96.0.1 \
            sport=40000 dport=80 \
                    src=10.244.2.2 dst=10.244.1.2 sport=8080 dport=40000 [ASSURED] mark=0 use=2";
        let connection = parse(line)?.context("TCP")?;
        let (client, service, server): (SocketAddr, SocketAddr, SocketAddr) = (
            "10.244.1.2:40000".parse()?,
            "10.96.0.1:80".parse()?,
            "10.244.2.2:8080".parse()?,
        );
        assert!(connection.is_between(client, service) && connection.is_between(client, server));
        assert_eq!(
            (connection.state.as_deref(), connection.timeout),
            (Some("ESTABLISHED"), 431_999)
        );
        let is_offloaded = connection.is_offloaded;
        let ways = translations(&[connection]);
        let sent = Tuple {
            protocol: Protocol::Tcp,
            source: client,
            destination: service,
        };
        let delivered = Tuple {
            destination: server,
            ..sent
        };
        assert_eq!(ways[&sent], delivered);
        assert_eq!(ways[&delivered.reversed()], sent.reversed());

        let unanswered = "ipv6     10 udp      17 29 src=fd00::1 dst=fd00::2 sport=1 dport=2 \
            [UNREPLIED] src=fd00::2 \
                          dst=fd00::1 sport=2 dport=1 mark=0 use=2";
        assert_eq!(parse(unanswered)?.context("UDP")?.state, None);

        let offloaded = "ipv4     2 tcp      6 src=10.244.1.2 dst=10.244.2.2 sport=1 dport=2 \
            src=10.244.2.2 \
                         dst=10.244.1.2 sport=2 dport=1 [OFFLOAD] mark=0 use=3";
        let offloaded = parse(offloaded)?.context("TCP")?;
        assert!(
            offloaded.is_offloaded && offloaded.state.is_none() && !is_offloaded,
            "{offloaded:?}"
        );
        assert!(
            parse("ipv4     2 icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=1 src=1")?
                .is_none()
        );
        Ok(())
    }
}
