//! Metrics of the agent itself: from its status, its pulse, its peers and its counts.

use flannel_backends::WAY_NAMES;
use flannel_host::family::Family;
use flannel_reconcile::SharedPeers;
use flannel_status::{
    CheckStatus, ConflictStatus, FastStatus, GuardStatus, LeaseStatus, PodStatus, Repairs, Status,
    StoreStatus,
};
use prometheus::core::Collector as _;

use super::{
    catalogue as metric,
    counts::{Counts, Displaced},
    page::{Page, length, number},
};
use crate::readiness::Readiness;

const MODES: [&str; 3] = ["kernel", "encap", "fast"];
const GUARD_MODES: [&str; 3] = ["off", "audit", "enforce"];

/// Writes it all.
pub(super) fn write(page: &mut Page, readiness: &Readiness, shared: &SharedPeers, counts: &Counts) {
    page.boolean(metric::READY, readiness.is_ready());
    page.value(metric::MAIN_LOOP_SILENCE, readiness.silence().as_secs_f64());
    // Of the status numbers are taken, so the main loop, which may be about to write it, waits for
    // microseconds at most.
    status(page, &readiness.status());
    peers(page, shared);
    self::counts(page, counts);
}

/// Returns the label value of a family.
pub(super) const fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

fn status(page: &mut Page, status: &Status) {
    page.list(metric::BUILD_INFO, [([status.version.as_str()], 1.0)]);
    page.choose(metric::MODE, &MODES, &status.mode.effective);
    let (wanted, source) = (&status.mode.wanted, status.mode.source.name());
    page.list(
        metric::WANTED_MODE,
        MODES.map(|mode| ([mode, source], f64::from(u8::from(mode == wanted)))),
    );
    page.value(metric::REJECTED_LEASES, number(status.rejected_total));
    conflicts(page, status.conflicts);
    page.value(metric::DIRTY_ENTRIES, number(status.dirty_total));
    page.list(
        metric::DEVICE_MTU,
        status
            .devices
            .iter()
            .map(|device| ([&device.name], f64::from(device.mtu))),
    );
    repairs(
        page,
        status.repairs,
        status.traffic.as_ref().map(|traffic| traffic.repairs),
    );
    if let Some(traffic) = status
        .traffic
        .as_ref()
        .filter(|traffic| traffic.is_any_asked_for())
    {
        page.boolean(metric::TRAFFIC_RULES, traffic.error.is_none());
    }
    page.boolean(
        metric::LEASE_HELD,
        status.lease.as_ref().is_some_and(|lease| lease.held),
    );
    if let Some(own) = &status.lease {
        lease(page, own);
    }
    page.boolean(
        metric::STORE_IN_SYNC,
        status.store.as_ref().is_some_and(|store| store.in_sync),
    );
    if let Some(known) = &status.store {
        store(page, known);
    }
    host(page, status);
    if let Some(checks) = &status.guard {
        guard(page, checks);
    }
    if let Some(fast) = &status.fast {
        pods(page, fast);
    }
}

fn conflicts(page: &mut Page, found: ConflictStatus) {
    let conflicts = [
        ("mac", found.mac),
        ("key", found.key),
        ("subnet", found.subnet),
        ("address", found.address),
    ];
    page.list(
        metric::LEASE_CONFLICTS,
        conflicts.map(|(kind, count)| ([kind], length(count))),
    );
}

/// Settings of devices and sysctls of the host.
fn host(page: &mut Page, status: &Status) {
    let offloads = status
        .checksum_offload
        .iter()
        .filter_map(|offload| Some((offload, offload.on?)));
    page.list(
        metric::TX_CHECKSUM_OFFLOAD,
        offloads.map(|(offload, is_on)| ([&offload.device], f64::from(u8::from(is_on)))),
    );
    page.list(
        metric::SYSCTL_PROBLEMS,
        status
            .sysctl_problems
            .iter()
            .map(|problem| ([&problem.sysctl], 1.0)),
    );
}

fn lease(page: &mut Page, lease: &LeaseStatus) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (v6, public_v6) = (text(&lease.ipv6_subnet), text(&lease.public_ipv6));
    // Without IPv4 the first two fields repeat what IPv6 has.
    let if_v4 = |text: &str, v6: &str| {
        if text == v6 {
            String::new()
        } else {
            text.to_owned()
        }
    };
    let labels = [
        if_v4(&lease.subnet, &v6),
        v6,
        if_v4(&lease.public_ip, &public_v6),
        public_v6,
    ];
    page.list(metric::LEASE_INFO, [(labels, 1.0)]);
    if let Some(expires_at) = lease.expires_at {
        page.value(metric::LEASE_EXPIRES, number(expires_at));
    }
}

fn store(page: &mut Page, store: &StoreStatus) {
    if let Some(since) = store.since {
        page.value(metric::STORE_SINCE, number(since));
    }
    if let Some(last) = store.last_change {
        page.value(metric::STORE_LAST_CHANGE, number(last));
    }
}

fn guard(page: &mut Page, GuardStatus { outer, inner, .. }: &GuardStatus) {
    let checks: [(&str, &CheckStatus); 2] = [("outer", outer), ("inner", inner)];
    let is = |check: &CheckStatus, mode| f64::from(u8::from(check.effective == mode));
    page.list(
        metric::GUARD_MODE,
        checks
            .iter()
            .flat_map(|(name, check)| GUARD_MODES.map(|mode| ([*name, mode], is(check, mode)))),
    );
    let outcomes = |(name, check): &(&'static str, &CheckStatus)| {
        [
            ([*name, "refused"], number(check.refused)),
            ([*name, "passed"], number(check.passed)),
        ]
    };
    page.list(metric::GUARD_PACKETS, checks.iter().flat_map(outcomes));
}

fn pods(page: &mut Page, fast: &FastStatus) {
    let part = |pod: &&PodStatus| match (pod.sends, pod.receives) {
        (true, true) => "full",
        (false, false) => "none",
        _ => "one_way",
    };
    let count = |name| length(fast.pods.iter().filter(|pod| part(pod) == name).count());
    page.list(
        metric::FAST_PODS,
        ["full", "one_way", "none"].map(|name| ([name], count(name))),
    );
}

fn repairs(page: &mut Page, repairs: Repairs, rules: Option<u64>) {
    let Repairs {
        devices,
        addresses,
        neighbours,
        fdb,
        nexthops,
        wireguard,
        policies,
        routes,
        maps,
        sysctls,
    } = repairs;
    let objects = [
        ("device", devices),
        ("address", addresses),
        ("neighbour", neighbours),
        ("fdb", fdb),
        ("nexthop", nexthops),
        ("wireguard_peer", wireguard),
        ("xfrm_policy", policies),
        ("route", routes),
        ("map", maps),
        ("sysctl", sysctls),
        ("traffic_rules", rules.unwrap_or(0)),
    ];
    page.list(
        metric::REPAIRS,
        objects.map(|(name, count)| ([name], number(count))),
    );
}

fn peers(page: &mut Page, shared: &SharedPeers) {
    let ways = shared.ways();
    let count = |family, way| length(ways.get(&(family, way)).copied().unwrap_or(0));
    let samples = Family::BOTH
        .into_iter()
        .flat_map(|of| WAY_NAMES.map(|way| ([family(of), way], count(of, way))))
        .collect::<Vec<_>>();
    page.list(metric::PEERS, samples);
}

fn counts(page: &mut Page, counts: &Counts) {
    let store = &counts.store;
    let named = [
        (metric::LEASE_RENEWALS, &store.renewals),
        (metric::LEASE_RENEWAL_FAILURES, &store.renewal_failures),
        (metric::LEASE_LOSSES, &store.losses),
        (metric::STORE_LISTINGS, &store.listings),
        (metric::STORE_WATCHES, &store.watches),
        (metric::STORE_FAILURES, &store.failures),
        (metric::RECONCILE_ERRORS, &counts.errors),
        (metric::OBSERVED_FLOWS, &counts.flows.observed),
        (metric::MISSED_PACKETS, &counts.flows.missed),
    ];
    for (metric, count) in named {
        page.value(metric, number(count.get()));
    }
    let Displaced {
        health,
        metrics,
        status,
    } = &counts.displaced;
    let listeners = [("health", health), ("metrics", metrics), ("status", status)];
    page.list(
        metric::DISPLACED,
        listeners.map(|(name, count)| ([name], number(count.get()))),
    );
    counts
        .rounds
        .collect()
        .into_iter()
        .for_each(|family| page.add(family));
}
