//! The task that reads flows while clients want them.

use std::time::{Duration, Instant};

use flannel_datapath::PinRoot;
use flannel_flows::{
    events::{FlowSource, INTERVAL, Polled, SourceOptions, Waiting},
    monitor::DeviceNames,
};
use flannel_host::error_chain::chain;
use flannel_hubble::FlowRing;
use flannel_metrics::FlowCounts;
use flannel_names::NameResolver;
use tokio::{sync::watch, time::sleep};

use super::convert::{self, MessageContext};

/// Between two looks into the ring buffer of the programs.
const PERIOD: Duration = Duration::from_millis(100);
/// Names of devices are read again after this time: numbers are given to other devices.
const NAMES_PERIOD: Duration = Duration::from_mins(1);
/// Without a client for this long, flows are not observed and the ring is emptied.
const LINGER: Duration = Duration::from_mins(1);

/// The observer.
pub(super) struct Observer {
    ring: FlowRing,
    clients: watch::Receiver<usize>,
    pins: PinRoot,
    names: NameResolver,
    rate: u32,
    counts: FlowCounts,
    waiting: Waiting,
    devices: DeviceNames,
    complaint: String,
}

impl Observer {
    pub(super) fn new(
        ring: FlowRing,
        clients: watch::Receiver<usize>,
        pins: PinRoot,
        names: NameResolver,
        rate: u32,
        counts: FlowCounts,
    ) -> Self {
        let (waiting, devices) = (Waiting::default(), DeviceNames::default());
        Self {
            ring,
            clients,
            pins,
            names,
            rate,
            counts,
            waiting,
            devices,
            complaint: String::new(),
        }
    }

    /// Waits for clients and observes for them. Returns when the server is gone.
    pub(super) async fn run(mut self) {
        while self.clients.wait_for(|clients| *clients > 0).await.is_ok() {
            self.observe().await;
            self.waiting.clear();
            self.devices = DeviceNames::default();
            self.ring.clear();
        }
    }

    /// Observes until a minute has passed without a client.
    async fn observe(&mut self) {
        let options = SourceOptions {
            rate: self.rate,
            table_period: INTERVAL,
            with_ends: false,
        };
        let mut source = FlowSource::new(self.pins.clone(), options);
        let (mut last_client, mut renamed) = (Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            if now.duration_since(renamed) >= NAMES_PERIOD {
                (self.devices, renamed) = (DeviceNames::default(), now);
            }
            if *self.clients.borrow() > 0 {
                last_client = now;
            } else if now.duration_since(last_client) >= LINGER {
                return;
            }
            let polled = source.poll().unwrap_or_else(|error| {
                self.complain(&chain(&error));
                Polled::default()
            });
            match (source.problem(), source.drop_problem()) {
                (Some(problem), _) => {
                    self.complain(&format!("packets are not seen: {}", chain(problem)));
                }
                (None, Some(problem)) => {
                    self.complain(&format!("drops of the kernel: {}", chain(problem)));
                }
                (None, None) => self.complaint.clear(),
            }
            self.pass_on(polled, now);
            if self.waiting.is_empty() {
                self.ring.set_primed();
            }
            sleep(PERIOD).await;
        }
    }

    fn pass_on(&mut self, polled: Polled, now: Instant) {
        self.waiting.extend(polled.events, now);
        let addresses = self.waiting.addresses();
        if !addresses.is_empty() {
            let (names, is_complete) = self.names.known(&addresses);
            for event in self.waiting.due(is_complete, now) {
                let context = MessageContext {
                    node: self.names.node(),
                    names: &names,
                    devices: &mut self.devices,
                };
                self.ring.push(&convert::flow(&event, context));
                self.counts.observed.add();
            }
        }
        if polled.missed > 0 {
            self.counts.missed.add_many(polled.missed);
            self.ring.push_lost(polled.missed);
        }
        self.ring.show();
    }

    /// Logs a problem once.
    fn complain(&mut self, problem: &str) {
        if self.complaint != problem {
            problem.clone_into(&mut self.complaint);
            tracing::warn!("clients of Hubble do not see all flows: {problem}");
        }
    }
}
