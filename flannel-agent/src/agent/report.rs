//! The status document, from what the agent knows.

use tokio::sync::watch;

use crate::{
    agent::{main_loop::Running, store::unix},
    backend::vxlan::{PeerWay, Way},
    cli::RunOptions,
    datapath::policy::Wishes,
    observe::status::{
        DeviceStatus, InterfaceStatus, LeaseStatus, ModeStatus, PeerStatus, RejectedStatus, Status, StoreStatus,
    },
    subnet::Rejected,
};

impl Status {
    /// Of an agent that has just begun.
    pub(super) fn starting(options: &RunOptions) -> Self {
        let decision = Wishes { flag: options.datapath, ..Wishes::default() }.decide(false);
        let mode = ModeStatus {
            effective: decision.mode.to_string(),
            wanted: decision.wanted.to_string(),
            source: decision.source,
            reason: Some("the agent is starting".to_owned()),
            attach: None,
        };
        let endpoints = options.kube.as_ref().map_or(options.etcd.endpoints.clone(), |kube| vec![kube.api()]);
        let store = StoreStatus { endpoints, in_sync: false, reason: None, since: None, last_change: None };
        Self { pid: Some(std::process::id()), store: Some(store), ..Self::without_agent("starting", mode) }
    }
}

impl Running {
    /// Publishes the status, and the readiness where the store takes it.
    pub(super) fn publish(&self, publish: &watch::Sender<Status>) {
        self.node.readiness.set(self.ready());
        publish.send_modify(|status| *status = self.status(status));
    }

    fn status(&self, last: &Status) -> Status {
        let ready = self.ready();
        Status {
            version: last.version.clone(),
            pid: last.pid,
            ready,
            stage: if ready { "running" } else { "reconciling" }.to_owned(),
            mode: self.mode(),
            lease: Some(self.lease()),
            store: last.store.as_ref().map(|store| self.store.status(store.endpoints.clone())),
            interface: Some(self.interface()),
            device: self.device(),
            peers: self.node.reconciler.ways().iter().map(peer).collect(),
            rejected: self.rejected.iter().map(rejected).collect(),
            dirty: self.node.reconciler.dirty(),
            error: self.error().map(str::to_owned),
        }
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

    fn lease(&self) -> LeaseStatus {
        LeaseStatus {
            subnet: self.node.subnet.to_string(),
            public_ip: self.node.setup.external.public.to_string(),
            held: self.store.grants(&self.node.own),
            expires_at: self.node.own.expires_at.map(unix),
            assigned: self.node.assigned,
        }
    }

    fn interface(&self) -> InterfaceStatus {
        let external = &self.node.setup.external;
        InterfaceStatus {
            name: external.name.clone(),
            address: external.addr.to_string(),
            public_ip: external.public.to_string(),
        }
    }

    fn device(&self) -> Option<DeviceStatus> {
        self.node.reconciler.device().map(|device| DeviceStatus {
            name: device.name.clone(),
            index: device.index,
            mac: device.mac.to_string(),
            mtu: device.mtu,
        })
    }
}

fn rejected(lease: &Rejected) -> RejectedStatus {
    RejectedStatus { key: lease.key.clone(), reason: lease.to_string() }
}

fn peer(way: &PeerWay) -> PeerStatus {
    let (name, reason) = match &way.way {
        Way::Direct(_) => ("direct", None),
        Way::Tunnel(Ok(_)) => ("tunnel", None),
        Way::Tunnel(Err(reason)) => ("kernel", Some(reason.to_string())),
    };
    PeerStatus {
        subnet: way.peer.subnet.to_string(),
        public_ip: way.peer.public_ip.to_string(),
        vtep_mac: way.peer.vtep.map_or_else(|| "-".to_owned(), |vtep| vtep.mac.to_string()),
        way: name.to_owned(),
        reason,
    }
}
