//! The status document, from what the agent knows.

use std::{collections::BTreeSet, net::IpAddr};

use flannel_backend_api::{Device, PeerWay, TunnelFacts, Way, underlay::Path};
use flannel_common::abi::fast::PodEntry;
use flannel_datapath::policy::{Capability, ModeRequest};
use flannel_fast::pods::{Pod, PodVerdict};
use flannel_host::{
    clock::{self, BootTime},
    excerpt::excerpt,
    family::Family,
};
use flannel_iface::End;
use flannel_options::RunOptions;
use flannel_privileges::Privileges;
use flannel_status::{
    Claim, ConflictStatus, DeviceStatus, FastStatus, FlowTableStatus, InterfaceStatus,
    IpsecPeerStatus, LISTED, LeaseStatus, ModeStatus, NetworkStatus, PeerEchoStatus, PeerStatus,
    PodStatus, RejectedStatus, Repairs, STARTING, Status, StoreStatus, WireguardPeerStatus,
    WireguardStatus,
};
use flannel_store::{Conflict, LeaseKey, Rejected};
use tokio::sync::watch;

use crate::agent::main_loop::Agent;

/// The status of an agent that has just begun.
pub(super) fn starting(options: &RunOptions) -> Status {
    let decision = ModeRequest {
        flag: options.datapath.mode,
        ..ModeRequest::default()
    }
    .decide(Capability::NOTHING);
    let mode = ModeStatus {
        effective: decision.mode.to_string(),
        wanted: decision.wanted.to_string(),
        source: decision.source,
        reason: Some("the agent is starting".to_owned()),
        attach: None,
    };
    let endpoints = options
        .kube
        .as_ref()
        .map_or(options.etcd.endpoints.clone(), |kube| vec![kube.api()]);
    let store = StoreStatus {
        endpoints,
        in_sync: false,
        reason: None,
        since: None,
        last_change: None,
    };
    Status {
        pid: Some(std::process::id()),
        pin_root: Some(options.paths.bpf_pin_root.display().to_string()),
        privileges: Privileges::current().ok().map(|held| held.status()),
        store: Some(store),
        ..Status::without_agent(STARTING, mode)
    }
}

impl Agent {
    /// Publishes the status, and where the store takes it the state of the network.
    pub(super) fn publish(&self, publish: &watch::Sender<Status>) {
        self.node
            .store
            .availability
            .set(self.is_network_available());
        publish.send_modify(|status| {
            *status = self.status(status);
            status.update_problems(clock::unix_now());
        });
    }

    fn status(&self, last: &Status) -> Status {
        let ready = self.is_ready();
        let devices = self.devices();
        Status {
            version: last.version.clone(),
            pid: last.pid,
            // When a client asks.
            time: None,
            ready,
            pin_root: last.pin_root.clone(),
            privileges: last.privileges.clone(),
            stage: if ready { "running" } else { "reconciling" }.to_owned(),
            mode: self.mode(),
            flow_table: self.flow_table(),
            fast: self.fast(),
            guard: self.guard_status(),
            node_settings: self.node.settings.node.states(),
            drops: None,
            lease: Some(self.lease()),
            store: last
                .store
                .as_ref()
                .map(|store| self.store.status(store.endpoints.clone())),
            network: Some(self.network()),
            interface: Some(self.interface()),
            device: devices.first().cloned(),
            devices,
            checksum_offload: self.node.reconciler.checksum_offload(),
            traffic: Some(self.node.traffic.status()),
            // The shared states of peers and echoes have them. They are read when a client asks.
            peers: Vec::new(),
            echo: None,
            extension: None,
            cloud: None,
            udp: None,
            ipsec: None,
            pod_names: self.node.store.opt_outs.latest().names,
            rejected: self.rejected(),
            rejected_total: total(self.node.leases.rejected().len()),
            conflicts: self.conflicts(),
            dirty: self.node.reconciler.dirty().take(LISTED).collect(),
            dirty_total: total(self.node.reconciler.dirty().count()),
            repairs: Repairs {
                sysctls: self.node.host_sysctls.repairs(),
                ..self.node.reconciler.repairs()
            },
            unreachable_routes: self.node.reconciler.unreachable_routes(),
            sysctls: self.node.reconciler.fast().conntrack().changed(),
            sysctl_problems: self.node.host_sysctls.problems().to_vec(),
            addresses_in_pods: self
                .addresses_in_pods()
                .iter()
                .map(ToString::to_string)
                .collect(),
            closed_forward: self.node.firewall.closed_forward(),
            lost_subnets: self.lost_subnets.iter().map(ToString::to_string).collect(),
            lease_problem: self.store.lease_problem(),
            error: self.error(),
            // Read when a client asks.
            listeners: Vec::new(),
            problems: last.problems.clone(),
        }
    }

    fn conflicts(&self) -> ConflictStatus {
        ConflictStatus {
            mac: self.node.leases.conflicts(Conflict::Mac),
            key: self.node.leases.conflicts(Conflict::Key),
            subnet: self.node.leases.conflicts(Conflict::Subnet),
            address: usize::from(self.store.is_contested()),
        }
    }

    /// Those that claim what this node has come first: the list is cut.
    fn rejected(&self) -> Vec<RejectedStatus> {
        let leases = &self.node.leases;
        let ours = leases
            .conflicts_with_us()
            .map(|(lease, conflict)| rejected(&lease, Some(claim(conflict))));
        let others = leases
            .rejected()
            .filter(|lease| !lease.reason.is_with_us())
            .map(|lease| rejected(&lease, None));
        ours.chain(others).take(LISTED).collect()
    }

    fn mode(&self) -> ModeStatus {
        let bpf = self.node.reconciler.bpf();
        ModeStatus {
            effective: self.decision.mode.to_string(),
            wanted: self.decision.wanted.to_string(),
            source: self.decision.source,
            reason: self.mode_reason(),
            attach: bpf.map(|bpf| bpf.attach_kind().name().to_owned()),
        }
    }

    fn flow_table(&self) -> Option<FlowTableStatus> {
        let table = self.node.reconciler.bpf()?.flow_table()?;
        Some(FlowTableStatus {
            flows: table.flows,
            reason: table.reason.to_string(),
        })
    }

    fn fast(&self) -> Option<FastStatus> {
        let fast = self.node.reconciler.fast();
        fast.is_on().then(|| FastStatus {
            tcp_reason: fast.tcp_reason(),
            error: fast.error().map(str::to_owned),
            annotations: self.node.store.opt_outs.problem(),
            rules: self.node.firewall.chains(),
            rules_error: self.node.firewall.error(),
            outside: fast.learns_outside(),
            outside_reason: fast.outside_reason().map(ToString::to_string),
            decapsulation_reason: fast.decapsulation_reason().map(str::to_owned),
            underlay_reasons: fast
                .underlay_reasons()
                .iter()
                .map(ToString::to_string)
                .collect(),
            pods: fast
                .pods()
                .iter()
                .map(|(index, pod)| self::pod(*index, pod))
                .collect(),
        })
    }

    fn lease(&self) -> LeaseStatus {
        let key = self.node.lease.own.key;
        let subnet = |family| key.subnet(family).map(|subnet| subnet.to_string());
        let [v4, v6] =
            Family::BOTH.map(|family| self.end(family).map(|end| end.public.to_string()));
        LeaseStatus {
            subnet: Family::BOTH
                .into_iter()
                .find_map(subnet)
                .unwrap_or_default(),
            public_ip: v4.or(v6.clone()).unwrap_or_default(),
            ipv6_subnet: subnet(Family::V6),
            public_ipv6: v6,
            held: self.store.is_valid(&self.node.lease.own),
            expires_at: self.node.lease.own.expires_at.map(BootTime::unix),
            assigned: self.node.lease.assigned,
        }
    }

    fn network(&self) -> NetworkStatus {
        let config = &self.node.settings.config;
        // Other ports are published by each node, or there are none.
        let vni_and_port = config.backend.vni_and_port();
        NetworkStatus {
            networks: config
                .networks()
                .map(|network| network.to_string())
                .collect(),
            backend: config.backend.properties().type_name.to_owned(),
            vni: vni_and_port.map(|(vni, _)| vni),
            port: vni_and_port.map(|(_, port)| port),
            mtu: self.node.reconciler.mtu(),
        }
    }

    fn interface(&self) -> InterfaceStatus {
        let text = |part: fn(&End) -> IpAddr| {
            Family::BOTH.map(|family| self.end(family).map(|end| part(end).to_string()))
        };
        let ([address, ipv6_address], [public, public_ipv6]) =
            (text(|end| end.addr), text(|end| end.public));
        InterfaceStatus {
            name: self.node.external.chosen().name.clone(),
            address: address.or(ipv6_address.clone()).unwrap_or_default(),
            public_ip: public.or(public_ipv6.clone()).unwrap_or_default(),
            ipv6_address,
            public_ipv6,
        }
    }

    fn end(&self, family: Family) -> Option<&End> {
        self.node.external.chosen().ends.get(&family)
    }

    fn devices(&self) -> Vec<DeviceStatus> {
        let status = |(family, device): (Family, &Device)| DeviceStatus {
            name: device.name.clone(),
            index: device.index,
            mac: device
                .vtep
                .map_or_else(|| "-".to_owned(), |vtep| vtep.mac.to_string()),
            mtu: device.mtu,
            family: family.to_string(),
            zero_checksum_v6: device.vtep.is_some_and(|vtep| vtep.zero_checksum_v6),
            wireguard: self.node.reconciler.tunnel_facts(device).map(wireguard),
        };
        self.node.reconciler.devices().map(status).collect()
    }
}

fn pod(index: u32, pod: &Pod) -> PodStatus {
    let PodVerdict {
        entry,
        sends,
        receives,
        merged,
    } = &pod.verdict;
    let reasons: BTreeSet<_> = sends.iter().chain(receives).collect();
    PodStatus {
        veth: pod.veth.clone(),
        index,
        mac: entry.map(|entry| entry.mac.to_string()),
        sends: sends.is_empty(),
        receives: receives.is_empty(),
        reasons: reasons.into_iter().map(ToString::to_string).collect(),
        merged: entry.is_some_and(|entry| entry.has(PodEntry::MERGED)),
        merged_reason: merged.as_ref().map(ToString::to_string),
    }
}

fn wireguard(facts: TunnelFacts) -> WireguardStatus {
    let TunnelFacts {
        key,
        port,
        implementation,
    } = facts;
    WireguardStatus {
        public_key: key.to_string(),
        port,
        implementation: implementation.to_owned(),
    }
}

fn total(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn rejected(lease: &Rejected, claim: Option<Claim>) -> RejectedStatus {
    RejectedStatus {
        key: excerpt(&lease.key).to_string(),
        reason: lease.to_string(),
        claim,
    }
}

const fn claim(conflict: Conflict) -> Claim {
    match conflict {
        Conflict::Mac => Claim::Mac,
        Conflict::Key => Claim::Key,
        Conflict::Subnet => Claim::Subnet,
    }
}

/// Returns a note that the kernel chooses the next hop, and by which devices; `None` if the path
/// has a fixed next hop.
fn choice(path: &Path) -> Option<String> {
    let names: Vec<_> = path
        .uplinks
        .iter()
        .map(|ecmp_path| ecmp_path.name.as_str())
        .collect();
    path.next_hop.is_none().then(|| {
        format!(
            "the kernel chooses the next hop for each flow, by {}",
            names.join(", ")
        )
    })
}

/// Returns the status of a peer.
pub(super) fn peer(
    way: &PeerWay,
    echo: Option<PeerEchoStatus>,
    wireguard: Option<WireguardPeerStatus>,
    ipsec: Option<IpsecPeerStatus>,
) -> PeerStatus {
    let reason = match &way.way {
        Way::Direct(_) | Way::Carried(_) => None,
        Way::Tunnel(Ok(path)) => choice(path),
        Way::Tunnel(Err(reason)) => Some(reason.to_string()),
        Way::NotOnLink => {
            Some("the node is not on our own link, and the backend has no tunnel".to_owned())
        }
    };
    PeerStatus {
        // With etcd the entry is named after the subnet.
        node: way
            .peer
            .key
            .parse::<LeaseKey>()
            .is_err()
            .then(|| way.peer.key.to_string()),
        subnet: way.peer.subnet.to_string(),
        public_ip: way.peer.public_ip.to_string(),
        vtep_mac: way
            .peer
            .vtep()
            .map_or_else(|| "-".to_owned(), |vtep| vtep.mac.to_string()),
        way: way.way.name().to_owned(),
        reason,
        echo,
        wireguard,
        ipsec,
    }
}
