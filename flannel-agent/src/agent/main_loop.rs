//! The main loop: takes in what happened, makes the kernel follow, says how it went.

use std::time::{Duration, Instant};

use anyhow::bail;
use flannel_common::mode::Mode;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval_at, sleep_until},
};

use crate::{
    agent::{refusals::RefusalLog, start::Started, store::Store},
    datapath::{
        DatapathError,
        policy::{Able, Decision, Wishes},
    },
    firewall::Limit,
    guard::Guard,
    host::error_chain::chain,
    host::sysctl,
    netlink::KernelEvent,
    observe::{metrics::Counts, pulse::Pulse, status::Status},
    reconcile::{Bpf, Cluster},
    subnet::{OwnLease, StoreEvent, SubnetEnv},
    traffic::Wanted,
};

/// Between beats of the heart; the programs wait a minute.
const BEAT: Duration = Duration::from_secs(1);
/// Between looks for listeners to queues in mode `fast`, which confirm what was learned: a new flow waits that long
/// before it is used.
const CONFIRM: Duration = Duration::from_millis(100);
/// Between looks at everything there is, for drift that no event announced.
const RESYNC: Duration = Duration::from_secs(30);
/// Between looks at what is cheap to look at and not announced either: sysctls, TCX programs, pods' own ends of veths.
const UNANNOUNCED: Duration = Duration::from_secs(5);
/// Before another try when a whole reconciliation did not go through.
const RETRY: Duration = Duration::from_secs(1);

/// The state that changes while the agent runs, in addition to the reconciler's.
pub(super) struct Running {
    pub(super) node: Started,
    pub(super) store: Store,
    pub(super) decision: Decision,
    /// The reason why the mode asked for cannot be put in force, if it cannot.
    lowered: Option<String>,
    pub(super) applied: bool,
    pub(super) guard: Guard,
    pulse: Pulse,
    counts: Counts,
    refusals: RefusalLog,
    written: Option<SubnetEnv>,
    retry: Option<Instant>,
}

impl Started {
    /// Runs until a task it depends on ends, which none does by itself.
    pub(super) async fn run(
        self,
        publish: &watch::Sender<Status>,
        pulse: &Pulse,
        counts: &Counts,
    ) -> anyhow::Result<()> {
        let decision = Wishes::default().decide(Able::NOTHING);
        let guard = Guard::new(self.guard);
        let mut running = Running {
            node: self,
            store: Store::new(),
            decision,
            lowered: None,
            applied: false,
            guard,
            pulse: pulse.clone(),
            counts: counts.clone(),
            refusals: RefusalLog::default(),
            written: None,
            retry: None,
        };
        running.follow_mode();
        running.follow_guard();
        running.step().await;
        running.publish(publish);
        running.keep(publish).await
    }
}

/// The action of the loop in response to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    /// Nothing.
    Rest,
    /// Publish the status.
    Tell,
    /// Make the kernel follow, and publish the status.
    Act,
}

impl Then {
    const fn act_if(dirty: bool) -> Self {
        if dirty { Self::Act } else { Self::Rest }
    }
}

impl Running {
    async fn keep(&mut self, publish: &watch::Sender<Status>) -> anyhow::Result<()> {
        let [mut beat, mut confirm, mut resync, mut unannounced] = [BEAT, CONFIRM, RESYNC, UNANNOUNCED].map(|period| {
            let mut ticks = interval_at((Instant::now() + period).into(), period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        loop {
            let retry = self.retry.unwrap_or_else(|| Instant::now() + RESYNC);
            let then = tokio::select! {
                event = self.node.kernel.next() => match event {
                    Some(event) => Then::act_if(self.observe(&event)),
                    None => bail!("the kernel's event stream ended; the agent has to start anew"),
                },
                event = self.node.store.recv() => match event {
                    Some(event) => self.learn(event),
                    None => bail!("the store's task ended; the agent has to start anew"),
                },
                () = std::future::ready(()), if self.node.reconciler.is_behind() => Then::Act,
                () = self.node.traffic.changed() => Then::Act,
                _ = beat.tick() => self.beat(),
                _ = confirm.tick(), if self.decision.mode == Mode::Fast => self.confirm(),
                () = self.node.rules.due() => {
                    self.node.reconciler.new_generation();
                    self.doubt_rules();
                    Then::Rest
                }
                () = self.node.firewall.changed() => {
                    self.follow_mode();
                    Then::Act
                }
                () = self.node.opt_outs.changed() => self.follow_opt_outs(),
                _ = unannounced.tick() => self.look_around(),
                _ = resync.tick() => self.doubt_everything(),
                () = sleep_until(retry.into()) => Then::Act,
            };
            if then == Then::Act {
                self.step().await;
            }
            if then != Then::Rest {
                self.publish(publish);
            }
        }
    }

    /// Takes in an event and whatever came with it.
    fn observe(&mut self, event: &KernelEvent) -> bool {
        let mut dirty = self.observe_one(event);
        while let Some(event) = self.node.kernel.try_next() {
            dirty |= self.observe_one(&event);
        }
        dirty
    }

    fn observe_one(&mut self, event: &KernelEvent) -> bool {
        self.node.traffic.observe(event);
        self.node.host_addresses.observe(event);
        self.node.external.observe(event) | self.node.reconciler.observe(event)
    }

    fn look_around(&mut self) -> Then {
        let ports = self.node.reconciler.set_port_range(sysctl::local_ports());
        Then::act_if(self.node.reconciler.doubt_unannounced() | ports)
    }

    /// Takes in which pods stay out of mode `fast`.
    fn follow_opt_outs(&mut self) -> Then {
        let out = self.node.opt_outs.latest().out;
        Then::act_if(self.node.reconciler.leave_out(out)).max(Then::Tell)
    }

    fn doubt_everything(&mut self) -> Then {
        self.node.external.doubt();
        self.node.host_addresses.invalidate();
        self.node.reconciler.doubt_everything();
        self.doubt_rules();
        Then::Act
    }

    /// The firewall's rules matter to mode `fast`, and to mode `encap` if they lower it;
    /// reading them costs too much to do it for nothing.
    fn doubt_rules(&self) {
        let least = if self.node.firewall.is_strict() { Mode::Encap } else { Mode::Fast };
        if self.decision.wanted >= least {
            self.node.firewall.doubt();
        }
    }

    fn learn(&mut self, event: StoreEvent) -> Then {
        let mut dirty = self.take_in(event);
        while let Ok(event) = self.node.store.try_recv() {
            dirty |= self.take_in(event);
        }
        Then::act_if(dirty).max(Then::Tell)
    }

    fn take_in(&mut self, event: StoreEvent) -> bool {
        self.store.take_in(&event);
        if let StoreEvent::OwnLease(own) = &event {
            self.hold(own.clone());
        }
        self.node.leases.apply(event)
    }

    fn hold(&mut self, own: OwnLease) {
        let held = self.node.own.key;
        if own.key != held {
            tracing::warn!(from = %held, to = %own.key, "our subnet changed; pods keep addresses of the old one until they are made anew");
        }
        self.node.own = own;
    }

    /// Makes the kernel follow, and subnet.env.
    async fn step(&mut self) {
        self.follow_interface().await;
        self.node.opt_outs.first().await;
        self.follow_opt_outs();
        if let Some(host) = self.node.host_addresses.refresh().await {
            self.node.leases.set_host_addresses(host);
        }
        let changes = self.node.leases.changes();
        self.refusals.log(&changes.refused, Instant::now());
        self.node.reconciler.learn(changes);
        self.node.traffic.want(Wanted::of(&self.node.config, self.node.own.key, &self.node.former));
        let cluster = Cluster { own: self.node.own.key, in_sync: self.store.is_seen() };
        let begun = Instant::now();
        self.node.reconciler.apply(&cluster).await;
        self.counts.reconciled(begun.elapsed(), self.error().is_none());
        self.follow_guard();
        self.republish();
        self.follow_mode();
        self.applied = self.error().is_none() && self.node.reconciler.is_complete();
        // Who reads that file starts pods, whose first packets are to find their rules.
        if self.applied && self.node.traffic.is_settled() {
            self.write_env();
        }
        self.retry = self.retry_at();
    }

    /// Goes with the external interface.
    async fn follow_interface(&mut self) {
        let Some(interface) = self.node.external.look_again().await else { return };
        for end in interface.ends.values() {
            tracing::info!(interface = interface.name, index = interface.index, address = %end.addr, public = %end.public, "the external interface changed");
        }
        self.node.reconciler.move_to(interface);
        self.republish();
    }

    /// Publishes the lease attributes if they changed: the addresses at which other nodes reach
    /// this one, or its ends of the tunnels.
    fn republish(&mut self) {
        let vteps = self.node.reconciler.vteps();
        let attrs = self.node.published.attrs(self.node.external.chosen(), &vteps);
        if self.node.attrs.send_if_modified(|published| std::mem::replace(published, attrs.clone()) != attrs) {
            self.node.leases.set_own_attrs(attrs);
        }
    }

    /// Returns the reason why the node is not as it should be, if it is not.
    pub(super) fn error(&self) -> Option<String> {
        self.node.external.problem().map(str::to_owned).or_else(|| self.node.reconciler.error())
    }

    fn write_env(&mut self) {
        let Some(mtu) = self.node.reconciler.mtu() else { return };
        let (config, own) = (&self.node.config, self.node.own.key);
        let env = SubnetEnv {
            v4: config.ipv4.map(|family| family.network).zip(own.v4),
            v6: config.ipv6.map(|family| family.network).zip(own.v6),
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
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

    fn beat(&mut self) -> Then {
        self.pulse.beat();
        self.refusals.report(Instant::now());
        let before = self.decision.clone();
        self.follow_mode();
        if let Some(bpf) = self.node.reconciler.bpf_mut()
            && let Err(error) = bpf.beat()
        {
            tracing::warn!(error = chain(&error), "cannot beat; the programs will leave packets to the kernel");
        }
        let guarded = self.follow_guard() | self.tell_of_guard();
        let lapsed = self.store.look_at_clock(&self.node.own);
        if self.node.reconciler.refresh_conntrack() {
            return Then::Act;
        }
        if self.decision != before || lapsed || guarded { Then::Tell } else { Then::Rest }
    }

    /// Confirms what mode `fast` has learned. Where that fails nothing new is used, and the next beat says why.
    fn confirm(&mut self) -> Then {
        if let Some(bpf) = self.node.reconciler.bpf_mut()
            && let Err(error) = bpf.confirm()
        {
            tracing::debug!(error = chain(&error), "cannot confirm what was learned");
        }
        Then::Rest
    }

    /// Puts the mode in force that is asked for; the operator may have asked for another since.
    fn follow_mode(&mut self) {
        let wishes = Wishes { choice: None, flag: self.node.flag, config: self.node.config.datapath };
        let refusal = self.node.reconciler.fast_refusal().map(|reason| Limit { most: Mode::Encap, reason });
        let limit = self.node.firewall.limit().into_iter().chain(refusal).min_by_key(|limit| limit.most);
        let Some(bpf) = self.node.reconciler.bpf_mut() else {
            self.decision = wishes.decide(Able::NOTHING);
            return;
        };
        let followed = follow(bpf, wishes, limit.as_ref());
        match followed {
            Ok((changed, decision, lowered)) => {
                if changed || decision != self.decision {
                    tracing::info!(mode = %decision.mode, source = ?decision.source, reason = lowered, "datapath mode");
                }
                self.node.reconciler.switch_fast(decision.mode == Mode::Fast);
                self.node.opt_outs.want(decision.mode == Mode::Fast);
                self.decision = decision;
                self.lowered = lowered;
                if self.node.firewall.is_blind() {
                    self.doubt_rules();
                }
            }
            Err(error) => tracing::warn!(error = chain(&error), "cannot follow the datapath mode"),
        }
    }

    /// When to try again what did not work, if anything did not.
    fn retry_at(&self) -> Option<Instant> {
        let unattached = self.node.reconciler.bpf().is_some_and(|bpf| !bpf.is_attached());
        let failed = !self.applied || self.written.is_none() || unattached;
        let soon = failed.then(|| Instant::now() + RETRY);
        soon.into_iter().chain(self.node.reconciler.next_retry()).min()
    }

    /// Has all that pods' packets need: the kernel and subnet.env agree with the leases, and our
    /// lease is valid. The store may be away, once its leases were read: they stay in force.
    pub(super) fn is_network_available(&self) -> bool {
        let has_lease = self.store.is_seen() && self.store.grants(&self.node.own);
        self.applied && self.written.is_some() && has_lease
    }

    /// Carries packets, and follows the cluster's changes.
    pub(super) fn is_ready(&self) -> bool {
        self.is_network_available() && self.store.is_in_sync()
    }

    /// Returns the reason why mode or programs are not as asked for; `None` if they are.
    pub(super) fn mode_reason(&self) -> Option<String> {
        let decision = &self.decision;
        if let Some(reason) = &self.node.no_bpf {
            return (decision.wanted != Mode::Kernel).then(|| reason.clone());
        }
        self.lowered.clone().filter(|_| decision.mode != decision.wanted)
    }
}

/// Puts the best mode in force that is asked for and can be, no higher than the limit. Whether that is news, and why it is not a
/// higher one if that was asked for.
fn follow(
    bpf: &mut Bpf,
    wishes: Wishes,
    limit: Option<&Limit>,
) -> Result<(bool, Decision, Option<String>), DatapathError> {
    let able = bpf.able();
    loop {
        let wishes = Wishes { choice: bpf.mode()?.choice(), ..wishes };
        let wanted = wishes.decide(able).mode;
        let mut limit = limit.filter(|limit| wanted > limit.most).cloned();
        if wanted == Mode::Fast && limit.is_none() {
            limit = bpf.count_polls().err().map(|error| Limit { most: Mode::Encap, reason: chain(&error) });
        }
        let decision = wishes.decide(Able { most: limit.as_ref().map_or(able.most, |limit| limit.most), ..able });
        // The operator's choice may be another by now.
        let Some(changed) = bpf.follow_mode(decision.mode, wishes.choice)? else { continue };
        if decision.mode != Mode::Fast {
            bpf.forget_polls()?;
        }
        let reason = limit.map(|limit| limit.reason);
        return Ok((changed, decision, reason.or_else(|| bpf.limited_by().map(str::to_owned))));
    }
}
