//! The parts of conntrack's entries on which two modes must agree. Pure.

use super::scenario::{CLIENT_PORTS, Side};
use crate::kernel::conntrack::{ends, values};

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple {
    /// The node.
    pub side: Side,
    /// Protocol, addresses and ports of the first packet.
    pub original: String,
}

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Addresses and ports of the answers.
    pub reply: String,
    /// Of TCP.
    pub state: Option<String>,
    /// Nothing came back so far.
    pub is_unreplied: bool,
    /// The mark.
    pub mark: u32,
    /// Seconds until it is forgotten.
    pub timeout: u64,
    /// The client's port.
    pub client_port: u16,
}

/// The longest timeout that an idle connection does not survive; those of ESTABLISHED count from
/// days.
pub const SHORT: u64 = 300;

impl Entry {
    /// Its fields by name.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("conntrack reply", self.reply.clone()),
            ("conntrack unreplied", self.is_unreplied.to_string()),
            ("conntrack mark", self.mark.to_string()),
        ];
        if let Some(state) = &self.state {
            let class = if self.timeout > SHORT {
                "over 300 s"
            } else {
                "300 s at most"
            };
            fields.extend([
                ("conntrack state", state.clone()),
                ("conntrack timeout", class.to_owned()),
            ]);
        }
        fields
    }
}

/// The entry of a line of `/proc/net/nf_conntrack`, if it is of one of our flows.
pub fn parse(side: Side, line: &str) -> Option<(Tuple, Entry)> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let protocol = *words.get(2)?;
    let [sources, destinations, from, to] = ends(&words);
    let tuple = |place: usize| -> Option<String> {
        let [from, to] = [from.get(place)?, to.get(place)?];
        Some(format!(
            "{protocol} {}:{from} -> {}:{to}",
            sources.get(place)?,
            destinations.get(place)?
        ))
    };
    let client_port: u16 = from.first()?.parse().ok()?;
    if !CLIENT_PORTS.contains(&client_port) {
        return None;
    }
    let state = words
        .get(5)
        .filter(|word| !word.contains('=') && protocol == "tcp");
    let entry = Entry {
        reply: tuple(1)?,
        state: state.map(|word| (*word).to_owned()),
        is_unreplied: words.contains(&"[UNREPLIED]"),
        mark: values(&words, "mark=")
            .next()
            .and_then(|mark| mark.parse().ok())
            .unwrap_or(0),
        timeout: words.get(4)?.parse().ok()?,
        client_port,
    };
    Some((
        Tuple {
            side,
            original: tuple(0)?,
        },
        entry,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_our_flows_are_read() {
        let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.244.1.2 dst=10.96.0.1 \
            sport=20003 dport=80 \
                    src=10.244.2.2 dst=10.244.1.2 sport=8080 dport=20003 [ASSURED] mark=2 use=2";
        let (tuple, entry) = parse(Side::A, line).expect("an entry");
        assert_eq!(tuple.original, "tcp 10.244.1.2:20003 -> 10.96.0.1:80");
        assert_eq!(
            (entry.mark, entry.client_port, entry.is_unreplied),
            (2, 20_003, false)
        );
        assert!(
            entry
                .fields()
                .contains(&("conntrack timeout", "over 300 s".to_owned()))
        );
        assert_eq!(parse(Side::A, &line.replace("20003", "40000")), None);
        let unreplied = "ipv4     2 udp      17 29 src=10.0.0.1 dst=10.0.0.2 sport=20001 dport=2 \
            [UNREPLIED] \
                         src=10.0.0.2 dst=10.0.0.1 sport=2 dport=20001 mark=0 use=2";
        let (_, entry) = parse(Side::B, unreplied).expect("an entry");
        assert!(entry.is_unreplied && entry.state.is_none());
    }
}
