//! Flows and their packets' properties.

use std::{fmt, ops::Range};

use super::Place;
use crate::{fast::Family, load::rr::Protocol};

/// By which address the client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The pod's own.
    Direct,
    /// A Service's, by kube-proxy's rules.
    Service,
}

/// The kind of traffic of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams in both directions, written byte by byte.
    Datagrams,
    /// Datagrams to a port that is closed.
    Refused,
    /// Datagrams the kernel cuts (`UDP_SEGMENT`), in one direction.
    Segmented,
    /// Messages over a connection, one at a time.
    Messages,
    /// A bulk transfer to the server, then messages.
    Bulk,
    /// An FTP control connection with PASV among other commands.
    Ftp,
}

impl Kind {
    /// The protocol that carries it.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Datagrams | Self::Refused | Self::Segmented => Protocol::Udp,
            Self::Messages | Self::Bulk | Self::Ftp => Protocol::Tcp,
        }
    }
}

/// Header fields that vary from packet to packet after the warm-up.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each field varies or does not, whatever the others do"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Varying {
    /// DSCP.
    pub dscp: bool,
    /// ECN.
    pub ecn: bool,
    /// TTL or hop limit.
    pub ttl: bool,
    /// Length.
    pub length: bool,
    /// DF, or the IPv6 flow label.
    pub label: bool,
    /// Some datagrams come as fragments.
    pub fragments: bool,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It stays open.
    Open,
    /// FIN by the client.
    Close,
    /// RST by the client.
    Reset,
    /// FIN, and further connections from the same port: some of one message each, and a longer one.
    Reuse,
}

/// A flow and its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its number in the scenario.
    pub id: u16,
    /// Address family.
    pub family: Family,
    /// The kind of its traffic.
    pub kind: Kind,
    /// The server's pod.
    pub to: Place,
    /// The address by which it is reached.
    pub via: Via,
    /// The fields that vary.
    pub varying: Varying,
    /// Its end, if it is a connection.
    pub ending: Ending,
    /// The seed of its packets' fields.
    pub seed: u64,
}

/// The first port of servers of [`Kind::Ftp`]: outside the default ports of conntrack's helper.
const FTP_PORTS: u16 = 2121;

/// Clients' ports of all flows.
pub const CLIENT_PORTS: Range<u16> = 20_000..30_000;

/// The client's port of the flow with this number.
pub const fn client_port(id: u16) -> u16 {
    CLIENT_PORTS.start + id
}

impl Flow {
    /// TCP or UDP.
    pub const fn protocol(&self) -> Protocol {
        self.kind.protocol()
    }

    /// The client's port.
    pub const fn client_port(&self) -> u16 {
        client_port(self.id)
    }

    /// The server's port.
    pub const fn server_port(&self) -> u16 {
        match self.kind {
            Kind::Ftp => FTP_PORTS + self.id,
            _ => 30_000 + self.id,
        }
    }

    /// The Service's number, from which its address is made.
    pub const fn service_number(&self) -> u16 {
        1000 + self.id
    }
}

/// A direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the client.
    Forward,
    /// From the server.
    Reply,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Reply];
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            family,
            kind,
            to,
            via,
            varying,
            ending,
            ..
        } = self;
        write!(
            f,
            "flow {id}: {family:?} {kind:?} Near:{} -> {to:?}:{}",
            self.client_port(),
            self.server_port()
        )?;
        if *via == Via::Service {
            write!(f, " through a Service")?;
        }
        let Varying {
            dscp,
            ecn,
            ttl,
            length,
            label,
            fragments,
        } = *varying;
        for (name, varies) in [
            ("dscp", dscp),
            ("ecn", ecn),
            ("ttl", ttl),
            ("length", length),
            ("df-or-label", label),
            ("fragments", fragments),
        ] {
            if varies {
                write!(f, ", varies {name}")?;
            }
        }
        if self.protocol() == Protocol::Tcp && *ending != Ending::Open {
            write!(f, ", ends by {ending:?}")?;
        }
        Ok(())
    }
}
