//! Which rules judge pods' packets one by one, watched for as long as mode `fast` is asked for.
//!
//! Reading the rules takes a tool, and seconds where there are many. So a task of its own does it, once for all doubts that came
//! meanwhile, and not more often than every ten seconds.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

use super::Ruleset;

/// Between two readings.
const PAUSE: Duration = Duration::from_secs(10);

/// The chains with such rules, or why they are not known.
type Seen = Result<Vec<String>, String>;

/// The main loop's side of the task. Dropping it ends the task.
#[derive(Debug)]
pub struct Watch {
    /// Mode `fast` gives way to such rules.
    strict: bool,
    doubt: watch::Sender<()>,
    seen: watch::Receiver<Option<Seen>>,
}

impl Watch {
    /// Starts the task in the network namespace of the calling thread; it reads when it is told to.
    pub fn start(strict: bool) -> Self {
        let (doubt, mut doubts) = watch::channel(());
        let (publish, seen) = watch::channel(None);
        tokio::spawn(async move {
            while doubts.changed().await.is_ok() {
                let now = Some(read().await);
                publish.send_if_modified(|seen| std::mem::replace(seen, now.clone()) != now);
                sleep(PAUSE).await;
            }
        });
        Self { strict, doubt, seen }
    }

    /// The rules may be others.
    pub fn doubt(&self) {
        self.doubt.send_replace(());
    }

    /// Whether nothing was read yet.
    pub fn is_blind(&self) -> bool {
        self.seen.borrow().is_none()
    }

    /// Waits until other rules are seen. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The chains with rules that judge single packets, as far as they are known.
    pub fn chains(&self) -> Vec<String> {
        self.seen.borrow().iter().flatten().flatten().cloned().collect()
    }

    /// Why mode `fast` gives way, if it does.
    pub fn refusal(&self) -> Option<String> {
        self.strict.then(|| refusal(self.seen.borrow().as_ref())).flatten()
    }
}

fn refusal(seen: Option<&Seen>) -> Option<String> {
    match seen {
        None => Some("--strict-rules, and the firewall's rules are not read yet".to_owned()),
        Some(Err(error)) => Some(format!("--strict-rules, and the firewall's rules cannot be read: {error}")),
        Some(Ok(chains)) if chains.is_empty() => None,
        Some(Ok(chains)) => {
            Some(format!("--strict-rules, and rules judge packets one by one in {}", chains.join(", ")))
        }
    }
}

async fn read() -> Seen {
    let (rules, errors) = Ruleset::read().await;
    match rules {
        _ if !errors.is_empty() => Err(errors.join("; ")),
        Some(rules) => Ok(rules.per_packet().iter().map(ToString::to_string).collect()),
        None => Err("neither nft nor iptables is installed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_gives_way_to_rules_and_to_not_knowing() {
        assert_eq!(refusal(Some(&Ok(Vec::new()))), None);
        let chains = vec!["ip filter FORWARD (limit)".to_owned()];
        let reason = refusal(Some(&Ok(chains))).unwrap_or_default();
        assert_eq!(reason, "--strict-rules, and rules judge packets one by one in ip filter FORWARD (limit)");
        assert!(refusal(None).is_some_and(|reason| reason.ends_with("not read yet")));
        assert!(refusal(Some(&Err("nft".to_owned()))).is_some());
    }
}
