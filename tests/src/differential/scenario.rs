//! A scenario: rules on two nodes and flows between their pods, as data. No I/O.

use std::{collections::BTreeSet, fmt};

use crate::{fast::Family, load::rr::Protocol};

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The node of the clients.
    A,
    /// The other one.
    B,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Its place in an array of both.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A pod of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On node A; the client of every flow.
    Near,
    /// On node A, too.
    Beside,
    /// On node B.
    Far,
    /// On node B, too.
    Other,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Near, Self::Beside, Self::Far, Self::Other];

    /// Its place in an array of all.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its node.
    pub const fn side(self) -> Side {
        match self {
            Self::Near | Self::Beside => Side::A,
            Self::Far | Self::Other => Side::B,
        }
    }
}

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

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It stays open.
    Open,
    /// FIN by the client.
    Close,
    /// RST by the client.
    Reset,
    /// FIN, and a second connection from the same port.
    Reuse,
}

/// A flow and its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its number in the scenario.
    pub id: u16,
    /// Address family.
    pub family: Family,
    /// What is sent.
    pub kind: Kind,
    /// The server's pod.
    pub to: Place,
    /// How it is reached.
    pub via: Via,
    /// What varies.
    pub varying: Varying,
    /// Its end, if it is a connection.
    pub ending: Ending,
    /// What its packets are made from.
    pub seed: u64,
}

/// Servers of [`Kind::Ftp`] have ports from here on: none of those conntrack's helper has by default.
const FTP_PORTS: u16 = 2121;

impl Flow {
    /// TCP or UDP.
    pub const fn protocol(&self) -> Protocol {
        self.kind.protocol()
    }

    /// The client's port.
    pub const fn client_port(&self) -> u16 {
        20_000 + self.id
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

/// A table of iptables; with nft, a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Before conntrack.
    Raw,
    /// Before routing decisions are final.
    Mangle,
    /// Translation.
    Nat,
    /// Policy.
    Filter,
}

/// A hook of netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// What comes in by a device.
    Prerouting,
    /// What is for the node itself.
    Input,
    /// What is for others.
    Forward,
    /// What the node sends itself.
    Output,
    /// What leaves.
    Postrouting,
}

impl Table {
    /// The tables.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Mangle, Self::Nat, Self::Filter];

    /// The hooks it has.
    pub const fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Raw => &[Hook::Prerouting, Hook::Output],
            Self::Mangle => &[Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting],
            Self::Nat => &[Hook::Prerouting, Hook::Output, Hook::Postrouting],
            Self::Filter => &[Hook::Input, Hook::Forward, Hook::Output],
        }
    }

    /// Its name in iptables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
        }
    }
}

impl Hook {
    /// Its name in iptables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
            Self::Postrouting => "POSTROUTING",
        }
    }
}

/// A program that writes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// nft.
    Nft,
    /// iptables, nf_tables variant.
    IptablesNft,
    /// iptables, legacy variant.
    IptablesLegacy,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nft, Self::IptablesNft, Self::IptablesLegacy];
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

/// The packets a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of these flows in one direction, which share a protocol.
    Flows(Vec<u16>, Direction),
    /// All of a protocol.
    All(Protocol),
    /// The outer packets of the tunnel.
    Outer,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal.
    Equal,
    /// Less than.
    Below,
    /// Greater than.
    Above,
}

/// A state of conntrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first packets.
    New,
    /// Answered.
    Established,
    /// None.
    Invalid,
}

/// What a rule looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// DSCP, or any but this one.
    Dscp(u8, bool),
    /// TTL or hop limit.
    Ttl(Compare, u8),
    /// The mark.
    Mark(u32),
    /// Conntrack's mark.
    ConnMark(u32),
    /// Conntrack's state.
    State(State),
    /// The source is one of these pods, by a set where the tool has them.
    Sources(Vec<Place>),
    /// The destination, likewise.
    Destinations(Vec<Place>),
    /// ECN.
    Ecn(u8),
    /// Longer than so many bytes.
    Longer(u16),
    /// TCP flag PSH.
    Push,
    /// Conntrack's helper is FTP's.
    Helper,
}

impl Match {
    /// Whether what it looks at differs between packets of a flow, without being part of what is learned of the flow.
    pub const fn is_per_packet(&self) -> bool {
        matches!(self, Self::Ecn(_) | Self::Longer(_) | Self::Push)
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Counts, and no more.
    Count,
    /// Ends the traversal of the table's hook.
    Accept,
    /// Drops.
    Drop,
    /// Drops with an answer.
    Reject,
    /// Sets the mark.
    SetMark(u32),
    /// Sets conntrack's mark.
    SetConnMark(u32),
    /// Conntrack's mark becomes the packet's.
    SaveMark,
    /// The packet's mark becomes conntrack's.
    RestoreMark,
    /// Sets DSCP.
    SetDscp(u8),
    /// Sets TTL or hop limit.
    SetTtl(u8),
    /// A copy for a pod of the same node.
    Copy(Place),
    /// To a listener of nfnetlink_log, or to no one.
    Log,
    /// To the listener of queue 0.
    Queue,
    /// The source becomes the node's.
    Masquerade,
    /// The destination becomes this pod and the port of this flow's server.
    Redirect(u16),
    /// Conntrack's helper for FTP.
    AssignHelper,
}

impl Action {
    /// Whether it wants each packet, and sees those the kernel carries.
    pub const fn is_per_packet(self) -> bool {
        matches!(self, Self::Copy(_) | Self::Log)
    }

    /// Whether the packet goes no further.
    pub const fn ends_packet(self) -> bool {
        matches!(self, Self::Drop | Self::Reject)
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number in the scenario, which its counter is known by.
    pub id: u16,
    /// The node.
    pub side: Side,
    /// What writes it.
    pub tool: Tool,
    /// Address family.
    pub family: Family,
    /// The table.
    pub table: Table,
    /// The hook.
    pub hook: Hook,
    /// In a chain of its own, which the hook's chain jumps to.
    pub nested: bool,
    /// Which packets.
    pub scope: Scope,
    /// Under which conditions.
    pub matches: Vec<Match>,
    /// What is done to them.
    pub action: Action,
}

impl Rule {
    /// Whether it judges packets of known flows one by one.
    pub fn is_per_packet(&self) -> bool {
        self.matches.iter().any(Match::is_per_packet)
    }

    /// Whether packets of this flow in this direction may meet it.
    pub fn may_see(&self, flow: &Flow, direction: Direction) -> bool {
        let crosses = flow.to.side() == Side::B;
        let is_there = self.side == Side::A || crosses;
        let is_family = self.family == flow.family;
        is_there
            && is_family
            && match &self.scope {
                Scope::Flows(ids, only) => ids.contains(&flow.id) && *only == direction,
                Scope::All(protocol) => *protocol == flow.protocol(),
                Scope::Outer => crosses,
            }
    }
}

/// How long the phases of a run are, in packets of each flow and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Equal packets, from which flows are learned.
    pub warm_up: u32,
    /// Packets with varying fields.
    pub varying: u32,
    /// Whether a silence longer than the refresh interval follows, and so many varying packets again.
    pub after_silence: Option<u32>,
}

/// What else is on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Filters of others on the cables, which mirror what comes in.
    pub filters: bool,
    /// Cables that take no large segments, as a wire does not.
    pub wire: bool,
}

/// Rules and traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What it was made from.
    pub seed: u64,
    /// The rules, in order of evaluation.
    pub rules: Vec<Rule>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// The phases.
    pub phases: Phases,
    /// What else is there.
    pub surroundings: Surroundings,
}

impl Scenario {
    /// The flow with this number.
    pub fn flow(&self, id: u16) -> Option<&Flow> {
        self.flows.iter().find(|flow| flow.id == id)
    }

    /// Whether a rule judges packets of this flow one by one, in either direction or on the tunnel.
    pub fn is_judged_per_packet(&self, flow: &Flow) -> bool {
        let sees = |rule: &&Rule| Direction::ALL.iter().any(|direction| rule.may_see(flow, *direction));
        self.rules.iter().filter(sees).any(Rule::is_per_packet)
    }

    /// The families in use.
    pub fn has(&self, family: Family) -> bool {
        self.flows.iter().any(|flow| flow.family == family)
    }

    /// With the rules of missing tools written by nft. A helper is assigned behind conntrack there.
    #[must_use]
    pub fn with_tools(mut self, available: &BTreeSet<Tool>) -> Self {
        for rule in self.rules.iter_mut().filter(|rule| !available.contains(&rule.tool)) {
            rule.tool = Tool::Nft;
            // nft of this kernel may have no queue.
            if rule.action == Action::Queue {
                rule.action = Action::Count;
            }
            if rule.action == Action::AssignHelper {
                rule.table = Table::Mangle;
            }
        }
        self
    }

    /// Without rules about flows that are not there any more.
    #[must_use]
    pub fn pruned(mut self) -> Self {
        let ids: BTreeSet<u16> = self.flows.iter().map(|flow| flow.id).collect();
        for rule in &mut self.rules {
            if let Scope::Flows(of, _) = &mut rule.scope {
                of.retain(|id| ids.contains(id));
            }
        }
        self.rules.retain(|rule| !matches!(&rule.scope, Scope::Flows(of, _) if of.is_empty()));
        self
    }

    /// Where a program in userspace is asked about packets.
    pub fn queues(&self) -> BTreeSet<Side> {
        self.rules.iter().filter(|rule| rule.action == Action::Queue).map(|rule| rule.side).collect()
    }

    /// The tools in use.
    pub fn tools(&self) -> BTreeSet<Tool> {
        self.rules.iter().map(|rule| rule.tool).collect()
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, family, kind, to, via, varying, ending, .. } = self;
        write!(f, "flow {id}: {family:?} {kind:?} Near:{} -> {to:?}:{}", self.client_port(), self.server_port())?;
        if *via == Via::Service {
            write!(f, " through Service {}", family.service(self.service_number()))?;
        }
        let Varying { dscp, ecn, ttl, length, label, fragments } = *varying;
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
