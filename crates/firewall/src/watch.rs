//! The rules that matter to a running agent, watched: those that judge packets one by one for as
//! long as a mode is asked for that hides packets from them, and always those that drop all
//! forwarded packets.
//!
//! A task reads them, once for all changes since the last reading, at most every ten seconds, and
//! less often where a reading takes long.

use std::time::{Duration, Instant};

use flannel_common::abi::mode::Mode;
use tokio::{sync::watch, time::sleep};

use super::{
    PerPacket,
    hooks::Hooks,
    read::{Reading, Rules},
};

/// The shortest time between two readings.
const PAUSE: Duration = Duration::from_secs(10);
/// The time between two readings, as a multiple of the time that one takes.
const SHARE: u32 = 50;

/// The reason until rules were read once.
pub const NEVER_READ: &str = "the firewall's rules are not read yet";

/// The rules, or why they are not known.
type Seen = Result<Rules, String>;

/// The highest mode in which rules see all they look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    /// The mode.
    pub most: Mode,
    /// The reason why no higher one is allowed.
    pub reason: String,
}

/// The main loop's side of the task. Dropping it ends the task.
#[derive(Debug)]
pub struct Watch {
    /// Such rules lower the mode.
    strict: bool,
    changes: watch::Sender<Hooks>,
    seen: watch::Receiver<Option<Seen>>,
}

impl Watch {
    /// Starts the task in the network namespace of the calling thread; it reads on request. `port`
    /// is the tunnel's. `read` is called after each reading, when its memory is free again.
    pub fn start(strict: bool, port: Option<u16>, read: fn()) -> Self {
        let (changes, mut changed) = watch::channel(Hooks::Forward);
        let (publish, seen) = watch::channel(None);
        tokio::spawn(async move {
            let mut reading = Reading::new(port);
            while changed.changed().await.is_ok() {
                let begun = Instant::now();
                let hooks = *changed.borrow_and_update();
                let now = Some(reading.refresh(hooks).await);
                publish.send_if_modified(|seen| std::mem::replace(seen, now.clone()) != now);
                read();
                sleep(PAUSE.max(begun.elapsed() * SHARE)).await;
            }
        });
        Self {
            strict,
            changes,
            seen,
        }
    }

    /// The rules may be others; those that judge packets one by one matter if it says so.
    pub fn invalidate(&self, per_packet: bool) {
        self.changes.send_replace(if per_packet {
            Hooks::EachPacket
        } else {
            Hooks::Forward
        });
    }

    /// True until rules were read, also those that judge packets one by one if they matter.
    pub fn never_read(&self, per_packet: bool) -> bool {
        match &*self.seen.borrow() {
            None => true,
            Some(seen) => per_packet && seen.as_ref().is_ok_and(|rules| rules.per_packet.is_none()),
        }
    }

    /// True if such rules lower the mode.
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// Waits until other rules are seen. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The chains with rules that judge single packets, that were read.
    pub fn chains(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        seen.iter()
            .flatten()
            .flat_map(|rules| &rules.per_packet)
            .flatten()
            .map(ToString::to_string)
            .collect()
    }

    /// The chains that drop forwarded packets.
    pub fn closed_forward(&self) -> Vec<String> {
        self.seen
            .borrow()
            .iter()
            .flatten()
            .flat_map(|rules| rules.closed_forward.clone())
            .collect()
    }

    /// The reason why the rules are not known.
    pub fn error(&self) -> Option<String> {
        self.seen
            .borrow()
            .as_ref()
            .and_then(|seen| seen.as_ref().err().cloned())
    }

    /// The reason why tunnel packets that come have to pass the rules one by one, if they have to.
    pub fn reception_reason(&self) -> Option<String> {
        reception_reason(self.seen.borrow().as_ref())
    }

    /// The highest mode the rules allow, if they allow less than all.
    pub fn limit(&self) -> Option<RuleLimit> {
        self.strict
            .then(|| limit(self.seen.borrow().as_ref()))
            .flatten()
    }
}

fn reception_reason(seen: Option<&Seen>) -> Option<String> {
    let chains = match chains(seen) {
        Ok(chains) => chains,
        Err(reason) => return Some(reason),
    };
    let found: Vec<String> = chains.iter().filter_map(PerPacket::of_received).collect();
    (!found.is_empty()).then(|| format!("rules judge them one by one in {}", found.join(", ")))
}

/// The chains with rules that judge packets one by one, or the reason why they are not known.
fn chains(seen: Option<&Seen>) -> Result<&[PerPacket], String> {
    match seen {
        None
        | Some(Ok(Rules {
            per_packet: None, ..
        })) => Err(NEVER_READ.to_owned()),
        Some(Err(error)) => Err(format!("the firewall's rules cannot be read: {error}")),
        Some(Ok(Rules {
            per_packet: Some(chains),
            ..
        })) => Ok(chains),
    }
}

/// Rules for pods' packets, and for tunnel packets that come, see everything in mode `encap`; those
/// for tunnel packets that leave only in mode `kernel`.
fn limit(seen: Option<&Seen>) -> Option<RuleLimit> {
    let encap = |reason: String| {
        Some(RuleLimit {
            most: Mode::Encap,
            reason: format!("--strict-rules, and {reason}"),
        })
    };
    let chains = match chains(seen) {
        Ok(chains) => chains,
        Err(reason) => return encap(reason),
    };
    let list = |chains: &[&PerPacket]| {
        chains
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let of_encap: Vec<&PerPacket> = chains
        .iter()
        .filter(|chain| chain.concerns_encap())
        .collect();
    if !of_encap.is_empty() {
        let reason = format!(
            "--strict-rules, and rules judge tunnel packets one by one in {}",
            list(&of_encap)
        );
        return Some(RuleLimit {
            most: Mode::Kernel,
            reason,
        });
    }
    let all: Vec<&PerPacket> = chains.iter().collect();
    if all.is_empty() {
        None
    } else {
        encap(format!("rules judge packets one by one in {}", list(&all)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn chain() -> PerPacket {
        let limit = BTreeSet::from(["limit".to_owned()]);
        PerPacket {
            chain: "ip filter FORWARD".to_owned(),
            pods: limit,
            ..PerPacket::default()
        }
    }

    fn rules(per_packet: Vec<PerPacket>) -> Rules {
        Rules {
            per_packet: Some(per_packet),
            closed_forward: Vec::new(),
        }
    }

    #[test]
    fn strict_lowers_the_mode_for_rules_and_for_not_knowing() {
        assert_eq!(limit(Some(&Ok(rules(Vec::new())))), None);
        let found = limit(Some(&Ok(rules(vec![chain()])))).expect("a limit");
        assert_eq!(
            found.reason,
            "--strict-rules, and rules judge packets one by one in ip filter FORWARD (limit)"
        );
        assert_eq!(found.most, Mode::Encap);
        assert!(
            limit(Some(&Ok(Rules::default())))
                .is_some_and(|limit| limit.reason.ends_with("not read yet"))
        );
        assert!(limit(None).is_some_and(|limit| limit.reason.ends_with("not read yet")));
        assert!(limit(Some(&Err("nft".to_owned()))).is_some_and(|limit| limit.most == Mode::Encap));
    }

    #[test]
    fn rules_for_tunnel_packets_that_come_and_not_knowing_keep_them_with_the_kernel() {
        let received = BTreeSet::from(["source port".to_owned(), "limit".to_owned()]);
        let input = PerPacket {
            chain: "ip filter INPUT".to_owned(),
            received,
            ..chain()
        };
        assert_eq!(reception_reason(Some(&Ok(rules(Vec::new())))), None);
        assert_eq!(
            reception_reason(Some(&Ok(rules(vec![chain()])))),
            None,
            "rules for pods' packets"
        );
        assert_eq!(
            reception_reason(Some(&Ok(rules(vec![chain(), input])))).as_deref(),
            Some("rules judge them one by one in ip filter INPUT (limit, source port)")
        );
        assert_eq!(reception_reason(None).as_deref(), Some(NEVER_READ));
        assert!(
            reception_reason(Some(&Err("nft".to_owned())))
                .is_some_and(|reason| reason.ends_with(": nft"))
        );
    }

    #[test]
    fn rules_for_tunnel_packets_that_leave_ask_for_mode_kernel() {
        let length = BTreeSet::from(["length".to_owned()]);
        let sent = PerPacket {
            chain: "ip filter OUTPUT".to_owned(),
            sent: length.clone(),
            ..PerPacket::default()
        };
        let found = limit(Some(&Ok(rules(vec![chain(), sent])))).expect("a limit");
        let reason = "--strict-rules, and rules judge tunnel packets one by one in ip filter \
            OUTPUT (length) for tunnel packets";
        assert_eq!((found.most, found.reason.as_str()), (Mode::Kernel, reason));
        let received = PerPacket {
            chain: "ip filter INPUT".to_owned(),
            received: length,
            ..PerPacket::default()
        };
        assert_eq!(
            limit(Some(&Ok(rules(vec![received])))).map(|limit| limit.most),
            Some(Mode::Encap)
        );
    }
}
