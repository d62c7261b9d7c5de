//! The main loop: takes in what happened, makes the kernel follow, says how it went.

use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use flannel_common::mode::Mode;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep_until},
};

use crate::{
    agent::{start::Started, sysctl},
    datapath::policy::{Decision, Wishes},
    netlink::KernelEvent,
    observe::status::Status,
    reconcile::{Cluster, chain},
    subnet::{LostCause, OwnLease, StoreEvent, SubnetEnv},
};

/// Between beats of the heart; the programs wait a minute.
const BEAT: Duration = Duration::from_secs(1);
/// Between looks at everything there is, for drift that nobody announced.
const RESYNC: Duration = Duration::from_secs(30);
/// Between looks at sysctls, which are not announced either.
const SYSCTLS: Duration = Duration::from_secs(5);
/// Before another try when a whole reconciliation did not go through.
const RETRY: Duration = Duration::from_secs(1);

/// The store, as the loop sees it.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) seen: bool,
    pub(super) trouble: Option<String>,
    pub(super) lost: Option<LostCause>,
}

/// What changes while the agent runs, beside the reconciler.
pub(super) struct Running {
    pub(super) node: Started,
    pub(super) store: Store,
    pub(super) decision: Decision,
    pub(super) applied: bool,
    written: Option<SubnetEnv>,
}

impl Started {
    /// Runs until a task it depends on ends, which none does by itself.
    pub(super) async fn run(self, publish: &watch::Sender<Status>) -> anyhow::Result<()> {
        let decision = Wishes::default().decide(false);
        let mut running = Running { node: self, store: Store::default(), decision, applied: false, written: None };
        running.follow_mode();
        running.step().await;
        running.publish(publish);
        running.keep(publish).await
    }
}

impl Running {
    async fn keep(&mut self, publish: &watch::Sender<Status>) -> anyhow::Result<()> {
        let [mut beat, mut resync, mut sysctls] = [BEAT, RESYNC, SYSCTLS].map(|period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        loop {
            let retry = self.retry_at();
            let dirty = tokio::select! {
                event = self.node.kernel.next() => match event {
                    Some(event) => self.observe(event),
                    None => bail!("the kernel's event stream ended; the agent has to start anew"),
                },
                event = self.node.store.recv() => match event {
                    Some(event) => self.learn(event),
                    None => bail!("the store's task ended; the agent has to start anew"),
                },
                _ = beat.tick() => { self.beat(); false }
                _ = sysctls.tick() => self.node.reconciler.set_port_range(sysctl::local_ports()),
                _ = resync.tick() => { self.node.reconciler.doubt_everything(); true }
                () = sleep_until(retry.into()) => true,
            };
            if dirty {
                self.step().await;
            }
            self.publish(publish);
        }
    }

    /// Takes in an event and whatever came with it.
    fn observe(&mut self, event: KernelEvent) -> bool {
        let mut dirty = self.node.reconciler.observe(event);
        while let Some(event) = self.node.kernel.try_next() {
            dirty |= self.node.reconciler.observe(event);
        }
        dirty
    }

    fn learn(&mut self, event: StoreEvent) -> bool {
        let mut dirty = self.take_in(event);
        while let Ok(event) = self.node.store.try_recv() {
            dirty |= self.take_in(event);
        }
        dirty
    }

    fn take_in(&mut self, event: StoreEvent) -> bool {
        match &event {
            StoreEvent::InSync { .. } => {
                self.store.seen = true;
                self.store.recovered();
            }
            StoreEvent::Resumed => self.store.recovered(),
            StoreEvent::OutOfSync { reason } => {
                tracing::warn!(reason, "the store is out of reach; peers stay as they are");
                self.store.trouble = Some(reason.clone());
            }
            StoreEvent::OwnLease(own) => self.hold(own.clone()),
            StoreEvent::OwnLeaseLost { key, cause } => {
                tracing::error!(lease = %key, ?cause, "our lease is lost; acquiring again");
                self.store.lost = Some(*cause);
            }
            StoreEvent::Put(_) | StoreEvent::Delete { .. } => {}
        }
        self.node.leases.apply(event)
    }

    fn hold(&mut self, own: OwnLease) {
        self.store.lost = None;
        match own.key.v4 {
            Some(subnet) if subnet != self.node.subnet => {
                tracing::warn!(from = %self.node.subnet, to = %subnet, "our subnet changed; pods keep addresses of the old one until they are made anew");
                self.node.subnet = subnet;
            }
            _ => {}
        }
        self.node.own = own;
    }

    /// Makes the kernel follow, and subnet.env.
    async fn step(&mut self) {
        let cluster =
            Cluster { subnet: self.node.subnet, peers: self.node.leases.resolve().peers, in_sync: self.store.seen };
        self.node.reconciler.apply(&cluster).await;
        self.follow_mode();
        self.applied = self.node.reconciler.error().is_none();
        if self.applied {
            self.write_env();
        }
    }

    fn write_env(&mut self) {
        let Some(device) = self.node.reconciler.device() else { return };
        let env = SubnetEnv {
            v4: Some((self.node.setup.family.network, self.node.subnet)),
            v6: None,
            mtu: u16::try_from(device.mtu).unwrap_or(u16::MAX),
            ip_masq: self.node.ip_masq,
        };
        if self.written.as_ref() == Some(&env) {
            return;
        }
        match env.write(&self.node.subnet_file) {
            Ok(()) => {
                tracing::info!(file = %self.node.subnet_file.display(), "wrote subnet.env");
                self.written = Some(env);
            }
            Err(error) => tracing::error!(error = chain(&error), "cannot write subnet.env; tried again"),
        }
    }

    fn beat(&mut self) {
        self.follow_mode();
        if let Some(bpf) = self.node.reconciler.bpf_mut()
            && let Err(error) = bpf.beat()
        {
            tracing::warn!(error = chain(&error), "cannot beat; the programs will leave packets to the kernel");
        }
    }

    /// Puts the mode in force that is asked for; the operator may have asked for another since.
    fn follow_mode(&mut self) {
        let wishes = Wishes { choice: None, flag: self.node.flag, config: self.node.config_mode };
        let Some(bpf) = self.node.reconciler.bpf_mut() else {
            self.decision = wishes.decide(false);
            return;
        };
        let choice = match bpf.mode() {
            Ok(word) => word.choice(),
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot read the mode");
                return;
            }
        };
        let decision = Wishes { choice, ..wishes }.decide(true);
        match bpf.set_mode(decision.mode, choice) {
            Ok(true) => tracing::info!(mode = %decision.mode, source = ?decision.source, "datapath mode"),
            Ok(false) => {}
            Err(error) => tracing::warn!(error = chain(&error), "cannot set the mode"),
        }
        self.decision = decision;
    }

    fn retry_at(&self) -> Instant {
        let failed = (!self.applied || self.written.is_none()).then(|| Instant::now() + RETRY);
        let refused = self.node.reconciler.next_retry();
        let unattached = self.node.reconciler.bpf().filter(|bpf| !bpf.is_attached()).map(|_| Instant::now() + RETRY);
        [failed, refused, unattached].into_iter().flatten().min().unwrap_or_else(|| Instant::now() + RESYNC)
    }

    /// Packets flow, and would go on flowing.
    pub(super) fn ready(&self) -> bool {
        let unexpired = self.node.own.expires_at.is_none_or(|expiry| expiry > SystemTime::now());
        self.applied
            && self.written.is_some()
            && self.store.seen
            && self.store.trouble.is_none()
            && self.store.lost.is_none()
            && unexpired
    }

    /// Whether mode and programs are as asked for.
    pub(super) fn mode_reason(&self) -> Option<String> {
        let decision = &self.decision;
        if let Some(reason) = &self.node.no_bpf {
            return (decision.wanted != Mode::Kernel).then(|| reason.clone());
        }
        (decision.mode != decision.wanted).then(|| format!("this version has no mode {}", decision.wanted))
    }
}

impl Store {
    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the store is back");
        }
    }
}
