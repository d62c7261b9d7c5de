//! The task that reconciles the rules: the schedule, the scope and the result of each look.
//!
//! It looks when the desired rules change, when the kernel announces a change of the blackhole
//! route or of a table with our rules, and every half minute anyway. Tables of iptables are read at
//! most once per resync period, because they may be large and change often. Where their changes are
//! not announced (the legacy variant), they are read in every period. Rules that are not wanted are
//! removed once, and then left alone.

use std::time::{Duration, SystemTime};

use flannel_host::family::Family;
use flannel_netlink::{Netlink, NftablesChanges};
use flannel_status::TrafficStatus;
use flannel_store::{Backoff, Delays};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    TrafficError, blackhole,
    engines::Engines,
    rule::{self, Chains, Masquerade, Purpose},
    wanted::{Engine, FamilyScope, TrafficOptions, WantedTraffic},
};

/// Between two looks where changes are announced.
const ANNOUNCED_RESYNC: Duration = Duration::from_secs(30);
/// The delay before another look after a repair or a failed one: another process may be undoing our
/// changes.
const AGAIN: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30), 10).expect("a valid backoff");

/// The report of the task after each look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SyncReport {
    /// The wanted state at that look; `None` before the first one.
    pub(super) of: Option<WantedTraffic>,
    pub(super) status: TrafficStatus,
}

/// The outcome of one look.
#[derive(Debug, Default)]
struct Outcome {
    repaired: bool,
    errors: Vec<TrafficError>,
}

impl Outcome {
    fn take(&mut self, result: Result<bool, TrafficError>) {
        match result {
            Ok(repaired) => self.repaired |= repaired,
            Err(error) => self.errors.push(error),
        }
    }

    fn error(&self) -> Option<String> {
        let errors: Vec<_> = self.errors.iter().map(ToString::to_string).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }
}

/// The state of the task.
#[derive(Debug)]
pub(super) struct TrafficWorker {
    netlink: Netlink,
    options: TrafficOptions,
    engines: Engines,
    changes: Option<NftablesChanges>,
    status: TrafficStatus,
    /// The wanted state when everything was last in place.
    kept: Option<WantedTraffic>,
    /// True if the other engine does the work, because this one did not work.
    gave_way: bool,
    delays: Delays,
}

impl TrafficWorker {
    pub(super) async fn new(
        netlink: Netlink,
        asked: Option<Engine>,
        options: TrafficOptions,
        wanted: &WantedTraffic,
    ) -> Self {
        let status = TrafficStatus {
            masquerade: options.masquerade.any(),
            masquerade_exempt: options.exempt.iter().map(ToString::to_string).collect(),
            forward: options.forward,
            blackhole: options.blackhole,
            ..TrafficStatus::default()
        };
        let families: Vec<Family> = wanted.scopes.iter().map(FamilyScope::family).collect();
        let engines = Engines::find(asked, &families).await;
        let changes = engines
            .announced()
            .filter(|_| options.any_rule())
            .and_then(listen);
        Self {
            netlink,
            options,
            engines,
            changes,
            status,
            kept: None,
            gave_way: false,
            delays: AGAIN.delays(),
        }
    }

    /// The engine in use.
    pub(super) const fn engine(&self) -> Engine {
        self.engines.choice().engine
    }

    /// A tool that is missing, where masquerade was asked for. Forward rules are asked for by
    /// default, also on hosts where nothing ever drops a packet; they are only tried again.
    pub(super) fn demand_tools(&self, wanted: &WantedTraffic) -> Result<(), TrafficError> {
        let families = wanted.scopes.iter().map(FamilyScope::family);
        let mut masqueraded = families.filter(|family| self.options.masquerade.has(*family));
        masqueraded
            .find_map(|family| self.engines.missing(family))
            .map_or(Ok(()), Err)
    }

    /// Runs until the main loop is gone.
    pub(super) async fn run(
        mut self,
        mut desired: watch::Receiver<WantedTraffic>,
        mut invalidations: watch::Receiver<()>,
        publish: watch::Sender<SyncReport>,
    ) {
        loop {
            let wanted = desired.borrow_and_update().clone();
            invalidations.borrow_and_update();
            let outcome = self
                .look_or_give_way(&wanted.clone().without_others())
                .await;
            self.log_outcome(&wanted, &outcome);
            let report = SyncReport {
                of: Some(wanted),
                status: self.status.clone(),
            };
            publish.send_if_modified(|last| std::mem::replace(last, report) != *last);
            tokio::select! {
                // A new desired state takes precedence over a look, and so does the end of the main
                // loop.
                biased;
                changed = desired.changed() => if changed.is_err() { return },
                () = self.rest(&outcome, &mut invalidations) => {}
            }
        }
    }

    /// Waits until it is time to look again.
    async fn rest(&mut self, outcome: &Outcome, invalidations: &mut watch::Receiver<()>) {
        if outcome.repaired || !outcome.errors.is_empty() {
            sleep(self.delays.next_delay()).await;
            if !outcome.errors.is_empty() {
                return;
            }
        } else {
            self.delays.reset();
        }
        tokio::select! {
            () = self.due() => {}
            _ = invalidations.changed() => {}
        }
    }

    /// Waits until the next look at the engine's tables is due.
    async fn due(&mut self) {
        let by_iptables = self.engine() == Engine::Iptables && self.options.any_rule();
        if by_iptables {
            sleep(self.options.resync).await;
        }
        // A tool that was missing at first may be of either variant.
        let announced = self.engines.announced().is_some();
        match &mut self.changes {
            Some(changes) if announced => drop(timeout(ANNOUNCED_RESYNC, changes.next()).await),
            _ if by_iptables => {}
            _ => sleep(ANNOUNCED_RESYNC).await,
        }
    }

    /// Looks; by the other engine if the tool of this one never worked, and refuses.
    async fn look_or_give_way(&mut self, wanted: &WantedTraffic) -> Outcome {
        let outcome = self.look(wanted).await;
        let refusal = outcome
            .errors
            .iter()
            .find(|error| self.kept.is_none() && error.is_refusal());
        let Some(refusal) = refusal else {
            return outcome;
        };
        if self.gave_way || !self.engines.give_way(refusal).await {
            return outcome;
        }
        self.gave_way = true;
        self.changes = self.engines.announced().and_then(listen);
        self.look(wanted).await
    }

    /// Reads the current state and repairs what differs. Rules that are not wanted are searched for
    /// until they were once seen to be gone.
    async fn look(&mut self, wanted: &WantedTraffic) -> Outcome {
        let mut outcome = Outcome::default();
        let settled = self.kept.as_ref() == Some(wanted);
        for family in Family::BOTH {
            outcome.take(self.keep_rules(family, wanted, settled).await);
            if !settled || self.options.blackhole {
                outcome.take(
                    blackhole::keep(&self.netlink, family, wanted, self.options.blackhole).await,
                );
            }
        }
        if !settled {
            self.engines.leave_others(&wanted.networks()).await;
        }
        outcome
    }

    async fn keep_rules(
        &mut self,
        family: Family,
        wanted: &WantedTraffic,
        settled: bool,
    ) -> Result<bool, TrafficError> {
        if wanted.scope(family).is_some() && self.options.any_rule_of(family) {
            self.engines.demand(family).await?;
        }
        let chains = self.chains(family, wanted, settled);
        if chains.is_empty() {
            return Ok(false);
        }
        self.engines.keep(family, &chains, &wanted.networks()).await
    }

    /// Returns the wanted content of a family's chains. Chains that are not wanted are left out
    /// once they are gone.
    fn chains(&self, family: Family, wanted: &WantedTraffic, settled: bool) -> Chains {
        let options = Masquerade {
            random_fully: self.options.random_fully && self.engines.knows_random_fully(family),
            exempt: self.options.exempt_of(family).collect(),
        };
        let rules = |purpose| {
            let asked = match purpose {
                Purpose::Masquerade => self.options.masquerade.has(family),
                Purpose::Forward => self.options.forward,
            };
            let scope = wanted.scope(family).filter(|_| asked)?;
            Some(rule::rules(purpose, self.engine(), scope, &options))
        };
        let chains = Purpose::ALL
            .into_iter()
            .map(|purpose| (purpose, rules(purpose)));
        chains
            .filter(|(_, rules)| rules.is_some() || !settled)
            .collect()
    }

    /// Keeps the status, and says what is new.
    fn log_outcome(&mut self, wanted: &WantedTraffic, outcome: &Outcome) {
        let (error, settled) = (outcome.error(), self.kept.as_ref() == Some(wanted));
        if error != self.status.error {
            if let Some(error) = &error {
                tracing::warn!(error, "traffic rules are not as asked for; tried again");
            } else {
                tracing::info!("traffic rules are as asked for again");
            }
        }
        if outcome.repaired && settled {
            tracing::warn!("another process changed our traffic rules; they are repaired");
            self.status.repairs += 1;
            self.status.repaired_at = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .ok()
                .map(|at| at.as_secs());
        } else if outcome.repaired {
            tracing::info!("traffic rules are in place");
        }
        if error.is_none() {
            self.kept = Some(wanted.clone());
        }
        self.status.error = error;
        self.status.engine = self.engines.describe().filter(|_| self.options.any_rule());
        self.status.engine_reason = self
            .engines
            .choice()
            .reason
            .clone()
            .filter(|_| self.options.any_rule());
        let families = |has: fn(&TrafficOptions, Family) -> bool| {
            let found = wanted
                .scopes
                .iter()
                .map(FamilyScope::family)
                .filter(|family| has(&self.options, *family));
            found.map(|family| family.to_string()).collect()
        };
        self.status.families =
            families(|options, family| options.any_rule_of(family) || options.blackhole);
        self.status.masquerade_families =
            families(|options, family| options.masquerade.has(family));
    }
}

fn listen(tables: [&'static str; 2]) -> Option<NftablesChanges> {
    match NftablesChanges::subscribe(&tables) {
        Ok(changes) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, "changes of traffic rules go unnoticed until the next look at \
                everything");
            None
        }
    }
}
