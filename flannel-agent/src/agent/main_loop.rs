//! The main loop: takes in what happened, makes the kernel follow, says how it went.

use std::time::{Duration, Instant};

use anyhow::bail;
use flannel_common::abi::mode::Mode;
use flannel_datapath::{
    DatapathError,
    policy::{Capability, ModeChoice, ModeRequest},
};
use flannel_firewall::RuleLimit;
use flannel_guard::Guard;
use flannel_host::{error_chain::chain, sysctl};
use flannel_host_sysctls::Looked;
use flannel_metrics::{Counts, pulse::Pulse};
use flannel_netlink::KernelEvent;
use flannel_reconcile::{Bpf, Cluster};
use flannel_status::Status;
use flannel_store::{NodeSettings, OwnLease, StoreEvent, SubnetEnv};
use flannel_traffic::WantedTraffic;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval_at, sleep_until},
};

use crate::{
    agent::{
        components::Components,
        external,
        lost_subnets::{self, LostSubnet},
        refusals::RefusalLog,
        services::ServiceView,
        start::node::log_settings,
        store::Store,
    },
    memory,
};

/// The interval of heartbeats. The programs wait a minute for one.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Between looks for listeners to queues in mode `fast`, which confirm what was learned: a new flow
/// waits that long before it is used.
const CONFIRM: Duration = Duration::from_millis(100);
/// Between looks at everything there is, for drift that no event announced.
const RESYNC: Duration = Duration::from_secs(30);
/// Between looks at what is cheap to look at and not announced either: sysctls, TCX programs, pods'
/// own ends of veths.
const UNANNOUNCED: Duration = Duration::from_secs(5);
/// Before another try when a whole reconciliation did not go through.
const RETRY: Duration = Duration::from_secs(1);

/// The state that changes while the agent runs, in addition to the reconciler's.
pub(super) struct Agent {
    pub(super) node: Components,
    pub(super) store: Store,
    pub(super) decision: ModeChoice,
    /// The reason why the requested mode cannot be active, if there is one.
    lowered: Option<String>,
    pub(super) applied: bool,
    pub(super) guard: Guard,
    pulse: Pulse,
    counts: Counts,
    refusals: RefusalLog,
    written: Option<SubnetEnv>,
    pub(super) lost_subnets: Vec<LostSubnet>,
    /// True unless packets for pods of this node get lost before it, as in a cloud without a route.
    routed: bool,
    retry: Option<Instant>,
}

impl Components {
    /// Runs until a task it depends on ends, which none does by itself.
    pub(super) async fn run(
        self,
        publish: &watch::Sender<Status>,
        pulse: &Pulse,
        counts: &Counts,
    ) -> anyhow::Result<()> {
        let decision = ModeRequest::default().decide(Capability::NOTHING);
        let guard = Guard::new(self.settings.node.guard(self.settings.guard));
        let mut running = Agent {
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
            lost_subnets: Vec::new(),
            routed: false,
            retry: None,
        };
        running.reconcile().await;
        running.publish(publish);
        running.run_loop(publish).await
    }
}

/// The action of the loop in response to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Nothing.
    Idle,
    /// Publish the status.
    Publish,
    /// Make the kernel follow, and publish the status.
    Reconcile,
}

impl Outcome {
    const fn reconcile_if(dirty: bool) -> Self {
        if dirty { Self::Reconcile } else { Self::Idle }
    }
}

impl Agent {
    async fn run_loop(&mut self, publish: &watch::Sender<Status>) -> anyhow::Result<()> {
        let [mut heartbeat, mut confirm, mut resync, mut unannounced] =
            [HEARTBEAT, CONFIRM, RESYNC, UNANNOUNCED].map(|period| {
                let mut ticks = interval_at((Instant::now() + period).into(), period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ticks
            });
        loop {
            let retry = self.retry.unwrap_or_else(|| Instant::now() + RESYNC);
            let then = tokio::select! {
                event = self.node.kernel.next() => match event {
                    Some(event) => Outcome::reconcile_if(self.observe(&event)),
                    None => bail!("the kernel's event stream ended; the agent has to be restarted"),
                },
                event = self.node.store.events.recv() => match event {
                    Some(event) => self.apply_store_event(event),
                    None => bail!("the store's task ended; the agent has to be restarted"),
                },
                bpf = self.node.programs.loaded() => self.add_programs(bpf),
                () = std::future::ready(()), if self.node.reconciler.has_backlog() => {
                    Outcome::Reconcile
                }
                () = self.node.traffic.changed() => Outcome::Reconcile,
                _ = heartbeat.tick() => self.heartbeat(),
                _ = confirm.tick(), if self.decision.mode == Mode::Fast => self.confirm(),
                () = self.node.rules.due() => {
                    self.node.reconciler.new_generation();
                    self.invalidate_rules();
                    Outcome::Idle
                }
                () = self.node.firewall.changed() => {
                    self.follow_mode();
                    self.node.reconciler.set_reception(self.node.firewall.reception_reason());
                    Outcome::Reconcile
                }
                () = self.node.store.opt_outs.changed() => self.follow_opt_outs(),
                Ok(()) = self.node.echoes.unsummed_lost.changed() => self.follow_unsummed_lost(),
                Ok(()) = self.node.echoes.offloaded_lost.changed() => self.follow_offloaded_lost(),
                _ = unannounced.tick() => self.look_around(),
                _ = resync.tick() => self.invalidate_all(),
                () = sleep_until(retry.into()) => Outcome::Reconcile,
            };
            if then == Outcome::Reconcile {
                self.reconcile().await;
            }
            if then != Outcome::Idle {
                self.publish(publish);
            }
        }
    }

    /// Takes in the datapath, or that there is none.
    fn add_programs(&mut self, bpf: Option<Bpf>) -> Outcome {
        if let Some(bpf) = bpf {
            self.node.reconciler.add_bpf(bpf);
            self.look_for_judges();
        }
        self.follow_mode();
        self.follow_guard();
        Outcome::Reconcile
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

    fn look_around(&mut self) -> Outcome {
        let ports = self.node.reconciler.set_port_range(sysctl::local_ports());
        let judges = self.look_for_judges();
        Outcome::reconcile_if(self.node.reconciler.invalidate_unannounced() | ports | judges)
    }

    /// Takes in which pods stay out of mode `fast`.
    fn follow_opt_outs(&mut self) -> Outcome {
        let out = self.node.store.opt_outs.latest().out;
        Outcome::reconcile_if(self.node.reconciler.leave_out(out)).max(Outcome::Publish)
    }

    /// Takes in the peers to which packets without an outer UDP checksum are lost.
    fn follow_unsummed_lost(&mut self) -> Outcome {
        let lost = self.node.echoes.unsummed_lost.borrow_and_update().clone();
        if !lost.is_empty() {
            let peers: Vec<String> = lost.iter().map(ToString::to_string).collect();
            tracing::warn!(
                peers = peers.join(", "),
                "UDP over IPv6 without a checksum is lost on the way to these peers: the kernel \
                 carries their packets"
            );
        }
        Outcome::reconcile_if(self.node.reconciler.set_unsummed_lost(&lost))
    }

    fn follow_offloaded_lost(&mut self) -> Outcome {
        let lost = self.node.echoes.offloaded_lost.borrow_and_update().clone();
        Outcome::reconcile_if(self.node.reconciler.set_offloaded_lost(&lost))
    }

    fn invalidate_all(&mut self) -> Outcome {
        self.node.external.invalidate();
        self.node.host_sysctls.retry();
        self.node.host_addresses.invalidate();
        self.node.reconciler.invalidate_all();
        self.invalidate_rules();
        Outcome::Reconcile
    }

    fn invalidate_rules(&self) {
        self.node.firewall.invalidate(self.needs_all_rules());
    }

    /// Rules that judge packets one by one matter to mode `fast`, and to mode `encap` if they lower
    /// it; reading all rules costs too much to do it for nothing.
    fn needs_all_rules(&self) -> bool {
        let least = if self.node.firewall.is_strict() {
            Mode::Encap
        } else {
            Mode::Fast
        };
        self.decision.wanted >= least
    }

    fn apply_store_event(&mut self, event: StoreEvent) -> Outcome {
        let mut dirty = self.apply_lease_event(event);
        while let Ok(event) = self.node.store.events.try_recv() {
            dirty |= self.apply_lease_event(event);
        }
        Outcome::reconcile_if(dirty).max(Outcome::Publish)
    }

    fn apply_lease_event(&mut self, event: StoreEvent) -> bool {
        self.store.apply_event(&event);
        match &event {
            StoreEvent::OwnLease(own) => self.hold(own.clone()),
            StoreEvent::Settings(settings) => self.follow_settings(settings.clone()),
            _ => {}
        }
        self.node.leases.apply(event)
    }

    /// Applies the settings of this node that can change while the agent runs.
    fn follow_settings(&mut self, settings: NodeSettings) {
        log_settings(self.node.settings.node.change(settings));
        self.guard
            .ask(self.node.settings.node.guard(self.node.settings.guard));
        self.follow_mode();
        self.follow_guard();
    }

    fn hold(&mut self, own: OwnLease) {
        let held = self.node.lease.own.key;
        if own.key != held {
            tracing::warn!(from = %held, to = %own.key, "our subnet changed; pods keep addresses \
                of the old one until they are recreated");
        }
        self.node.lease.own = own;
    }

    /// Makes the kernel follow, and subnet.env.
    async fn reconcile(&mut self) {
        self.follow_interface().await;
        self.follow_host_sysctls();
        self.node.store.opt_outs.first().await;
        self.follow_opt_outs();
        if let Some(host) = self.node.host_addresses.refresh().await {
            self.node.leases.set_host_addresses(host);
        }
        let changes = self.node.leases.changes();
        self.refusals.log(&changes.refused, Instant::now());
        self.find_lost_subnets();
        self.node.services.learn(&ServiceView {
            own: self.node.lease.own.key,
            interface: self.node.external.chosen(),
            leases: &self.node.leases,
            changes: &changes,
            in_sync: self.store.is_seen(),
        });
        self.routed = self.node.services.are_routed();
        self.node.reconciler.learn(changes);
        self.want_traffic();
        let are_loading = self.node.programs.are_loading();
        let cluster = Cluster {
            own: self.node.lease.own.key,
            in_sync: self.store.is_seen() && !are_loading,
        };
        let begun = Instant::now();
        self.node.reconciler.apply(&cluster).await;
        self.node
            .echoes
            .shared
            .try_offloads(self.node.reconciler.offload_trials());
        self.node
            .echoes
            .shared
            .set_own_subnets(self.node.lease.own.key);
        self.learn_former();
        self.counts
            .reconciled(begun.elapsed(), self.error().is_none());
        self.follow_guard();
        self.republish();
        self.follow_mode();
        let reconciler = &self.node.reconciler;
        let applied = reconciler.error().is_none() && reconciler.is_complete() && !are_loading;
        let was_applied = std::mem::replace(&mut self.applied, applied);
        if applied && !was_applied {
            // The load of the programs and the listing needed many times what they leave.
            memory::return_holes();
        }
        // The CNI plugin waits for that file, and the first packets of pods need the rules. Pods of
        // this node reach each other also without the external interface.
        if self.applied && self.routed && self.node.traffic.is_settled() {
            self.write_env();
        }
        self.retry = self.retry_at();
    }

    /// Looks for subnets that pods of this node still have addresses of and that are not its own,
    /// and logs each once.
    fn find_lost_subnets(&mut self) {
        let holder = |subnet| self.node.leases.holder(subnet).map(|name| name.to_string());
        let external = self.node.external.chosen().index;
        let among_pods = self.node.host_addresses.among_pods();
        let lost = lost_subnets::find(among_pods, self.node.lease.own.key, external, holder);
        for lost in lost.iter().filter(|lost| !self.lost_subnets.contains(lost)) {
            tracing::warn!("{lost}");
        }
        self.lost_subnets = lost;
    }

    fn want_traffic(&self) {
        let settings = &self.node.settings;
        self.node.traffic.want(WantedTraffic::of(
            &settings.config,
            self.node.lease.own.key,
            &settings.former,
        ));
    }

    /// Takes in former pod networks that only their leftovers named: their traffic rules go, too.
    fn learn_former(&mut self) {
        let found = self.node.reconciler.take_former();
        if !found.is_empty() {
            self.node.settings.former.extend(found);
            self.want_traffic();
        }
    }

    /// Reads the sysctls without which the kernel carries no packet of pods, and sets them. Returns
    /// true if what the status shows changed. With IPv6 on a device the kernel takes its addresses
    /// and routes, so after a change all of them are read back.
    fn follow_host_sysctls(&mut self) -> Looked {
        let bridges = self
            .node
            .host_addresses
            .bridges(self.node.lease.own.key, self.node.external.chosen().index);
        let looked = self
            .node
            .host_sysctls
            .look(&self.node.reconciler.sysctl_devices(&bridges));
        if looked.repaired {
            self.node.reconciler.invalidate_all();
        }
        looked
    }

    /// Goes with the external interface.
    async fn follow_interface(&mut self) {
        let Some(interface) = self.node.external.look_again().await else {
            return;
        };
        for end in interface.ends.values() {
            tracing::info!(
                interface = interface.name,
                index = interface.index,
                address = %end.addr,
                public = %end.public,
                "the external interface changed"
            );
        }
        external::warn_of_pod_networks(interface, &self.node.settings.config);
        self.node.reconciler.move_to(interface);
        self.republish();
    }

    /// Publishes the lease attributes if they changed: the addresses at which other nodes reach
    /// this one, or its ends of the tunnels.
    fn republish(&mut self) {
        let ends = self.node.reconciler.ends();
        let attrs = self
            .node
            .lease
            .published
            .attrs(self.node.external.chosen(), &ends);
        if self
            .node
            .lease
            .attrs
            .send_if_modified(|published| std::mem::replace(published, attrs.clone()) != attrs)
        {
            self.node.leases.set_own_attrs(attrs);
        }
    }

    /// Returns the reason why the node is not as it should be, if it is not.
    pub(super) fn error(&self) -> Option<String> {
        self.node
            .external
            .problem()
            .map(str::to_owned)
            .or_else(|| self.node.reconciler.error())
    }

    fn write_env(&mut self) {
        let Some(mtu) = self.node.reconciler.mtu() else {
            return;
        };
        let (config, own) = (&self.node.settings.config, self.node.lease.own.key);
        let env = SubnetEnv {
            v4: config.ipv4.map(|family| family.network).zip(own.v4),
            v6: config.ipv6.map(|family| family.network).zip(own.v6),
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
            ip_masq: self.node.settings.ip_masq,
        };
        if self.written.as_ref() == Some(&env) {
            return;
        }
        match env.write(&self.node.settings.subnet_file) {
            Ok(()) => {
                tracing::info!(
                    file = %self.node.settings.subnet_file.display(),
                    "wrote subnet.env"
                );
                self.written = Some(env);
            }
            Err(error) => tracing::error!(
                error = chain(&error),
                "cannot write subnet.env; tried again"
            ),
        }
    }

    fn heartbeat(&mut self) -> Outcome {
        self.pulse.record_heartbeat();
        self.refusals.report(Instant::now());
        let before = self.decision.clone();
        self.follow_mode();
        if self.node.firewall.never_read(self.needs_all_rules()) {
            self.invalidate_rules();
        }
        if let Some(bpf) = self.node.reconciler.bpf_mut()
            && let Err(error) = bpf.write_heartbeat()
        {
            tracing::warn!(
                error = chain(&error),
                "cannot beat; the programs will leave packets to the kernel"
            );
        }
        let guarded = self.follow_guard() | self.report_guard();
        let lapsed = self.store.look_at_clock(&self.node.lease.own);
        let sysctls = self.follow_host_sysctls();
        if sysctls.repaired {
            return Outcome::Reconcile;
        }
        if self.node.reconciler.refresh_conntrack() {
            return Outcome::Reconcile;
        }
        if self.node.services.are_routed() != self.routed {
            return Outcome::Reconcile;
        }
        if self.decision != before || lapsed || guarded || sysctls.changed {
            Outcome::Publish
        } else {
            Outcome::Idle
        }
    }

    /// Confirms what mode `fast` has learned, unless a BPF program has come to a hook of netfilter.
    /// If that fails, new flows are not used, and the next heartbeat reports the reason.
    fn confirm(&mut self) -> Outcome {
        if self.look_for_judges() {
            self.follow_mode();
            return Outcome::Reconcile;
        }
        if let Some(bpf) = self.node.reconciler.bpf_mut()
            && let Err(error) = bpf.confirm()
        {
            tracing::debug!(error = chain(&error), "cannot confirm what was learned");
        }
        Outcome::Idle
    }

    /// Looks for BPF programs at netfilter's hooks. Returns true if others were found than before.
    fn look_for_judges(&mut self) -> bool {
        let Some(bpf) = self.node.reconciler.bpf_mut() else {
            return false;
        };
        let looked = bpf.look_for_judges();
        looked.unwrap_or_else(|error| {
            tracing::debug!(
                error = chain(&error),
                "BPF programs at netfilter's hooks are not known"
            );
            false
        })
    }

    /// Applies the requested mode. The operator may have requested another since the last call.
    fn follow_mode(&mut self) {
        let settings = &self.node.settings;
        let request = ModeRequest {
            choice: None,
            annotation: settings.node.mode(),
            flag: settings.mode,
            config: settings.config.datapath,
        };
        let refusal = self.node.reconciler.fast_refusal().map(|reason| RuleLimit {
            most: Mode::Encap,
            reason,
        });
        let judges = self.node.reconciler.bpf().and_then(Bpf::judges_limit);
        let limits = self
            .node
            .firewall
            .limit()
            .into_iter()
            .chain(refusal)
            .chain(judges);
        let limit = limits.min_by_key(|limit| limit.most);
        let Some(bpf) = self.node.reconciler.bpf_mut() else {
            let able = Capability {
                has_work: settings.has_work,
                ..Capability::NOTHING
            };
            self.decision = request.decide(able);
            return;
        };
        let followed = follow(bpf, request, limit.as_ref());
        match followed {
            Ok((changed, decision, lowered)) => {
                if changed || decision != self.decision {
                    tracing::info!(
                        mode = %decision.mode,
                        source = ?decision.source,
                        reason = lowered,
                        "datapath mode"
                    );
                }
                self.node
                    .reconciler
                    .switch_fast(decision.mode == Mode::Fast);
                self.node.store.opt_outs.want(decision.mode == Mode::Fast);
                self.decision = decision;
                self.lowered = lowered;
            }
            Err(error) => tracing::warn!(error = chain(&error), "cannot follow the datapath mode"),
        }
    }

    /// When to try again what did not work, if anything did not.
    fn retry_at(&self) -> Option<Instant> {
        let unattached = self
            .node
            .reconciler
            .bpf()
            .is_some_and(|bpf| !bpf.is_attached());
        let failed = !self.applied || self.written.is_none() || unattached;
        let soon = failed.then(|| Instant::now() + RETRY);
        soon.into_iter()
            .chain(self.node.reconciler.next_retry())
            .chain(self.node.external.next_look())
            .min()
    }

    /// Returns true if pods' packets have all they need: the kernel, subnet.env and the cloud agree
    /// with the leases, and our lease is valid. The store may be unreachable once its leases were
    /// read: they continue to apply.
    pub(super) fn is_network_available(&self) -> bool {
        let has_lease = self.store.is_seen() && self.store.is_valid(&self.node.lease.own);
        let has_interface = self.node.external.problem().is_none();
        self.applied && self.routed && self.written.is_some() && has_lease && has_interface
    }

    /// Carries packets, and follows the cluster's changes. Where the host forwards no packets the
    /// network is available all the same: the CNI plugin `bridge` switches forwarding on as it
    /// makes the first pod, and without `subnet.env` and that condition no pod would be made.
    pub(super) fn is_ready(&self) -> bool {
        self.is_network_available()
            && self.store.is_in_sync()
            && self.node.host_sysctls.problems().is_empty()
    }

    /// Returns the reason why mode or programs are not as asked for; `None` if they are.
    pub(super) fn mode_reason(&self) -> Option<String> {
        let decision = &self.decision;
        if let Some(reason) = self.node.programs.missing() {
            return (decision.wanted != Mode::Kernel).then(|| reason.to_owned());
        }
        self.lowered
            .clone()
            .filter(|_| decision.mode != decision.wanted)
    }
}

/// Applies the highest possible mode up to the requested one and the limit. Returns true if the
/// mode changed, the choice, and the reason why it is lower than requested, if it is.
fn follow(
    bpf: &mut Bpf,
    request: ModeRequest,
    limit: Option<&RuleLimit>,
) -> Result<(bool, ModeChoice, Option<String>), DatapathError> {
    let capability = bpf.capability();
    loop {
        let request = ModeRequest {
            choice: bpf.mode()?.choice(),
            ..request
        };
        let wanted = request.decide(capability).mode;
        let mut limit = limit.filter(|limit| wanted > limit.most).cloned();
        if wanted == Mode::Fast && limit.is_none() {
            limit = bpf.count_polls().err().map(|error| RuleLimit {
                most: Mode::Encap,
                reason: chain(&error),
            });
        }
        let decision = request.decide(Capability {
            most: limit.as_ref().map_or(capability.most, |limit| limit.most),
            ..capability
        });
        // The operator's choice may be another by now.
        let Some(changed) = bpf.follow_mode(decision.mode, request.choice)? else {
            continue;
        };
        if decision.mode != Mode::Fast {
            bpf.forget_polls()?;
        }
        let reason = limit.map(|limit| limit.reason);
        return Ok((
            changed,
            decision,
            reason.or_else(|| bpf.limited_by().map(str::to_owned)),
        ));
    }
}
