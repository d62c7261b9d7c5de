//! The task that keeps the routes: it reads the tables, changes what is not as it should be, and
//! reports.
//!
//! A round is due at the start, when a lease changes what this node's route should be, and once in
//! an interval, because tables announce nothing. The rounds of a cluster's nodes are spread by
//! chance, and those that fail come less and less often.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_host::error_chain::chain;
use flannel_status::CloudStatus;
use tokio::{sync::watch, time::sleep_until};

use super::{
    client::CloudClient,
    desired::DesiredRoute,
    error::CloudError,
    plan::{Leases, RouteChange, RouteStep, Table, plan},
    record::{Record, RecordedRoute},
    setup::CloudSetup,
};

/// The wait after the first failure; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// The longest wait after too many requests.
const LONGEST_THROTTLED: Duration = Duration::from_mins(10);
/// An error that stays is logged again after this time.
const LOG_AGAIN: Duration = Duration::from_hours(1);

/// The state of the task.
pub(super) struct RouteWorker {
    setup: CloudSetup,
    record: Record,
    session: Option<Session>,
    status: CloudStatus,
    logged: Option<(String, Instant)>,
}

/// A client of the cloud, and this node's place in it.
struct Session {
    /// The address by which the place was found.
    address: IpAddr,
    client: Box<dyn CloudClient>,
    /// True once the check of source and destination is off, or is known to stay on.
    is_check_settled: bool,
}

impl RouteWorker {
    /// A route on record counts as present: an earlier agent made it.
    pub(super) fn new(setup: CloudSetup, desired: &DesiredRoute) -> Result<Self, CloudError> {
        let record = Record::load(&setup.state_dir)?;
        let status = CloudStatus {
            cloud: setup.config.kind().name().to_owned(),
            destination: desired.own.to_string(),
            present: record
                .routes()
                .iter()
                .any(|route| route.destination == desired.own),
            ..CloudStatus::default()
        };
        setup.shared.set(status.clone());
        Ok(Self {
            setup,
            record,
            session: None,
            status,
            logged: None,
        })
    }

    /// Runs until the main loop is gone.
    pub(super) async fn run(mut self, mut receiver: watch::Receiver<DesiredRoute>) {
        loop {
            let desired = receiver.borrow_and_update().clone();
            let result = self.round(&desired).await;
            let due = Instant::now() + self.report(result.err().as_ref());
            loop {
                tokio::select! {
                    changed = receiver.changed() => match changed {
                        Ok(()) => {
                            if desired.needs_other_routes_than(&receiver.borrow_and_update()) {
                                break;
                            }
                        }
                        Err(_) => return,
                    },
                    () = sleep_until(due.into()) => break,
                }
            }
        }
    }

    /// Reconciles the routes in the cloud with the leases.
    async fn round(&mut self, desired: &DesiredRoute) -> Result<(), CloudError> {
        if self.status.destination != desired.own.to_string() {
            self.status.destination = desired.own.to_string();
            self.status.present = false;
        }
        if self
            .session
            .as_ref()
            .is_none_or(|session| session.address != desired.address)
        {
            self.session = Some(Session::open(&self.setup, desired.address).await?);
        }
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        session.settle_check(&mut self.status.source_check).await;
        let tables = session.client.tables().await?;
        self.status.target = Some(session.client.target().to_owned());
        self.status.tables = tables.iter().map(|table| table.id.clone()).collect();
        // The record precedes the routes: a recorded route that does not exist does no harm.
        for table in &tables {
            self.record
                .add(session.client.record(&table.id, desired.own))?;
        }
        let steps = plan(&self.leases(desired), &tables);
        let kept = self.apply(steps, &tables).await;
        if desired.in_sync && kept.is_ok() {
            self.clear_former(desired, &tables).await
        } else {
            kept
        }
    }

    /// Removes routes on record that are no longer wanted: of a former subnet, or in a table that
    /// is no longer named.
    async fn clear_former(
        &mut self,
        desired: &DesiredRoute,
        tables: &[Table],
    ) -> Result<(), CloudError> {
        let Some(Session { client, .. }) = &mut self.session else {
            return Ok(());
        };
        let is_wanted = |route: &RecordedRoute| {
            route.destination == desired.own && tables.iter().any(|table| table.id == route.table)
        };
        let former = self
            .record
            .routes()
            .iter()
            .filter(|route| client.can_undo(route) && !is_wanted(route));
        for route in former.cloned().collect::<Vec<_>>() {
            client.undo(&route).await?;
            self.record.remove(&route.table, route.destination)?;
            tracing::info!(destination = %route.destination, table = route.table, "no longer a \
                route of this node");
        }
        Ok(())
    }

    fn leases(&self, desired: &DesiredRoute) -> Leases {
        let DesiredRoute {
            own,
            others,
            in_sync,
            ..
        } = desired;
        Leases {
            network: self.setup.network,
            own: *own,
            others: others.clone(),
            in_sync: *in_sync,
        }
    }

    /// Takes the steps. One that fails does not stop the others, unless there were too many
    /// requests. Returns the first error.
    async fn apply(&mut self, steps: Vec<RouteStep>, tables: &[Table]) -> Result<(), CloudError> {
        let Some(Session { client, .. }) = &mut self.session else {
            return Ok(());
        };
        let mut first = Ok(());
        let to_us = steps.iter().filter(|step| !step.is_removal());
        let mut lacking: BTreeSet<String> = to_us.map(|step| step.table.clone()).collect();
        for step in steps {
            if let Err(error) = client.apply(&step).await {
                let is_throttled = error.is_throttled();
                first = first.and(Err(error));
                if is_throttled {
                    break;
                }
                continue;
            }
            log(&step);
            let changes = &mut self.status.changes;
            match step.change {
                RouteChange::Create { .. } => changes.created += 1,
                RouteChange::Replace { .. } => changes.replaced += 1,
                RouteChange::Delete { .. } => changes.deleted += 1,
            }
            if step.is_removal() {
                self.record.remove(&step.table, step.destination)?;
            } else {
                lacking.remove(&step.table);
            }
        }
        self.status.present = !tables.is_empty() && lacking.is_empty();
        first
    }

    /// Writes down the outcome of a round. Returns the time until the next one.
    fn report(&mut self, error: Option<&CloudError>) -> Duration {
        if let Some(session) = &mut self.session {
            self.status.requests += session.client.take_requests();
        }
        self.status.attempts = if error.is_some() {
            self.status.attempts.saturating_add(1)
        } else {
            0
        };
        self.status.error = error.map(|error| chain(error));
        self.setup.shared.set(self.status.clone());
        self.log_error();
        let wait = error.map(|error| wait_after(self.status.attempts, error.is_throttled()));
        spread(wait.unwrap_or(self.setup.interval), rand::random())
    }

    /// Logs an error that is new, or stays for long, and its end.
    fn log_error(&mut self) {
        let Some(error) = &self.status.error else {
            if self.logged.take().is_some() {
                tracing::info!("the routes of the cloud can be kept again");
            }
            return;
        };
        let is_known = |(text, at): &(String, Instant)| text == error && at.elapsed() < LOG_AGAIN;
        if !self.logged.as_ref().is_some_and(is_known) {
            tracing::warn!(
                error,
                present = self.status.present,
                "cannot keep the routes of the cloud; tried again"
            );
            self.logged = Some((error.clone(), Instant::now()));
        }
    }
}

impl Session {
    async fn open(setup: &CloudSetup, address: IpAddr) -> Result<Self, CloudError> {
        let client = setup.config.connect(address).await?;
        tracing::info!(%address, target = client.target(), "this node's place in the cloud's \
            network");
        Ok(Self {
            address,
            client,
            is_check_settled: false,
        })
    }

    /// Switches the check of source and destination off, or looks at it, once. Without the
    /// permission it stays as it is: the operator may have switched it off.
    async fn settle_check(&mut self, reason: &mut Option<String>) {
        if self.is_check_settled {
            return;
        }
        let result = self.client.allow_pods().await;
        self.is_check_settled = matches!(
            result,
            Ok(()) | Err(CloudError::NotAllowed { .. } | CloudError::NoForwarding(_))
        );
        let before = std::mem::replace(reason, result.err().map(|error| error.to_string()));
        if let Some(reason) = reason
            && before.as_ref() != Some(reason)
        {
            tracing::warn!(
                target = self.client.target(),
                reason,
                "the check of source and destination may drop packets of pods"
            );
        }
    }
}

fn log(step: &RouteStep) {
    let RouteStep {
        table,
        destination,
        change,
    } = step;
    match change {
        RouteChange::Create { .. } => {
            tracing::info!(%destination, table, "made the route of this node");
        }
        RouteChange::Replace { before } => {
            tracing::warn!(%destination, table, %before, "the route of this node led elsewhere; it \
                leads here again");
        }
        RouteChange::Delete { reason } => {
            tracing::info!(%destination, table, %reason, "removed a route");
        }
    }
}

/// Returns the time until the next round after this many failures in a row.
fn wait_after(failures: u32, is_throttled: bool) -> Duration {
    let longest = if is_throttled {
        LONGEST_THROTTLED
    } else {
        LONGEST_WAIT
    };
    let factor = 1_u32
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u32::MAX);
    FIRST_WAIT.saturating_mul(factor).min(longest)
}

/// A time within a fifth of this one, by a number from 0 to 1.
fn spread(time: Duration, chance: f64) -> Duration {
    time.mul_f64(0.8 + 0.4 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_come_less_and_less_often() {
        let seconds = |failures, is_throttled| wait_after(failures, is_throttled).as_secs();
        assert_eq!(
            [1, 2, 3, 6, 40].map(|failures| seconds(failures, false)),
            [2, 4, 8, 60, 60]
        );
        assert_eq!(
            [1, 2, 6, 10, 40].map(|failures| seconds(failures, true)),
            [2, 4, 64, 600, 600]
        );
    }

    #[test]
    fn rounds_are_spread() {
        let minute = Duration::from_mins(1);
        let ends = [0.0, 0.5, 1.0].map(|chance| spread(minute, chance).as_secs_f64().round());
        assert_eq!(ends.map(|seconds| format!("{seconds}")), ["48", "60", "72"]);
    }
}
