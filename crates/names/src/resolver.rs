//! Questions for names, from any task.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use flannel_reconcile::SharedPeers;
use flannel_status::Status;
use flannel_store::kube::KubeOptions;
use tokio::{
    sync::watch,
    time::{Instant as TokioInstant, timeout_at},
};

use super::{
    AddressKind, AddressNames, ResolvedNames,
    cache::Cache,
    lookup::{LookupQuestion, LookupThread},
    node_index::{AddressPlace, NodeId, NodeIndex},
};

/// For this long the leases are not read again.
const INDEX_FRESH: Duration = Duration::from_secs(5);

/// The sources of names.
#[derive(Clone, Debug)]
pub struct NameSources {
    /// The status of the agent, for its own node.
    pub status: watch::Receiver<Status>,
    /// The peers.
    pub peers: SharedPeers,
    /// The name of this node.
    pub node: String,
    /// Kubernetes, if that is the store.
    pub kube: Option<KubeOptions>,
    /// The operator's file of hosts.
    pub hosts: Option<PathBuf>,
}

/// Finds names. Clones share what is known.
#[derive(Clone, Debug)]
pub struct NameResolver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sources: NameSources,
    cache: Arc<Mutex<Cache>>,
    index: Mutex<Option<(Instant, Arc<NodeIndex>)>>,
    thread: OnceLock<Option<LookupThread>>,
}

impl NameResolver {
    /// A resolver that has read nothing yet.
    pub fn new(sources: NameSources) -> Self {
        let (cache, index, thread) = (Arc::default(), Mutex::default(), OnceLock::new());
        Self(Arc::new(Shared {
            sources,
            cache,
            index,
            thread,
        }))
    }

    /// The name of this node.
    pub fn node(&self) -> &str {
        &self.0.sources.node
    }

    /// The other nodes by the names of their leases, with their addresses.
    pub fn other_nodes(&self) -> Vec<(String, String)> {
        let mut nodes = self
            .0
            .sources
            .peers
            .list(|way| (way.peer.key.to_string(), way.peer.public_ip.to_string()));
        nodes.dedup_by(|one, other| one.0 == other.0);
        nodes
    }

    /// All nodes by the names of their leases with their addresses; this one by its own name.
    pub fn node_addresses(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let sources = &self.0.sources;
        let lease = sources.status.borrow().lease.clone();
        let own = lease
            .iter()
            .flat_map(|lease| [Some(&lease.public_ip), lease.public_ipv6.as_ref()]);
        let own: Vec<IpAddr> = own.flatten().filter_map(|text| text.parse().ok()).collect();
        let mut nodes = BTreeMap::from([(sources.node.clone(), own)]);
        for (key, address) in sources
            .peers
            .list(|way| (way.peer.key.clone(), way.peer.public_ip))
        {
            nodes.entry(key.to_string()).or_default().push(address);
        }
        nodes
    }

    /// The names of the addresses. Waits for those that are being looked up until `patience` is
    /// over.
    pub async fn resolve(&self, addresses: &[IpAddr], patience: Duration) -> ResolvedNames {
        let deadline = TokioInstant::now() + patience;
        loop {
            // Before the names are read, so that no answer is missed.
            let answered = self.thread().map(|thread| thread.answered.clone());
            let (names, is_complete) = self.known(addresses);
            let Some(mut answered) = answered.filter(|_| !is_complete) else {
                return names;
            };
            if !matches!(timeout_at(deadline, answered.changed()).await, Ok(Ok(()))) {
                return self.known(addresses).0;
            }
        }
    }

    /// The names that are known now, and true if none of them is being looked up. Looks the others
    /// up.
    pub fn known(&self, addresses: &[IpAddr]) -> (ResolvedNames, bool) {
        let (index, now) = (self.index(), Instant::now());
        let own_pods = self.0.sources.status.borrow().pod_names.clone();
        let mut cache = self.cache();
        let mut is_complete = self.ask_for_tables(&mut cache, now);
        let mut names = ResolvedNames::new();
        for address in addresses {
            let (mut found, is_fresh) = self.one(&mut cache, &index, *address, now);
            if let Some(name) = own_pods.get(address) {
                found.pod = Some(name.clone());
            }
            is_complete &= is_fresh || own_pods.contains_key(address);
            names.insert(*address, found);
        }
        (names, is_complete)
    }

    fn one(
        &self,
        cache: &mut Cache,
        index: &NodeIndex,
        address: IpAddr,
        now: Instant,
    ) -> (AddressNames, bool) {
        let place = index.place(address);
        let mut names = AddressNames {
            service: cache.service(address),
            ..AddressNames::default()
        };
        let mut is_fresh = true;
        match place {
            _ if names.service.is_some() => names.kind = AddressKind::Service,
            AddressPlace::PodOf(node) => {
                names.kind = AddressKind::Pod;
                names.node = node.name().map(str::to_owned);
                (names.pod, is_fresh) = cache.pod(&node.key, address, now);
                if !is_fresh {
                    is_fresh = !self.ask_for_pods(cache, node);
                }
            }
            AddressPlace::PodNetwork => names.kind = AddressKind::Pod,
            AddressPlace::Node(node) => {
                names.kind = if node.is_own {
                    AddressKind::Host
                } else {
                    AddressKind::Node
                };
                names.node = node.name().map(str::to_owned);
                names.host = cache.host(address);
            }
            AddressPlace::Outside => names.host = cache.host(address),
        }
        (names, is_fresh)
    }

    /// Asks for the pods of a node, unless that was done. Returns true if an answer will come.
    fn ask_for_pods(&self, cache: &mut Cache, node: NodeId) -> bool {
        if cache.asked.contains(&node.key) {
            return true;
        }
        let key = node.key.clone();
        let is_asked = self.ask(LookupQuestion::Pods(node));
        if is_asked {
            cache.asked.insert(key);
        }
        is_asked
    }

    /// Asks for Services and hosts if they are not fresh. Returns true if no answer will come.
    fn ask_for_tables(&self, cache: &mut Cache, now: Instant) -> bool {
        if !cache.asked_services && !cache.has_services(now) {
            cache.asked_services = self.ask(LookupQuestion::Services);
        }
        if self.0.sources.hosts.is_some() && !cache.asked_hosts && !cache.has_hosts(now) {
            cache.asked_hosts = self.ask(LookupQuestion::Hosts);
        }
        !cache.asked_services && !cache.asked_hosts
    }

    fn ask(&self, question: LookupQuestion) -> bool {
        self.thread()
            .is_some_and(|thread| thread.questions.try_send(question).is_ok())
    }

    fn thread(&self) -> Option<&LookupThread> {
        let start = || {
            let NameSources { kube, hosts, .. } = self.0.sources.clone();
            LookupThread::start(self.0.cache.clone(), kube, hosts)
                .inspect_err(
                    |error| tracing::warn!(%error, "cannot start the thread that looks names up"),
                )
                .ok()
        };
        self.0.thread.get_or_init(start).as_ref()
    }

    fn index(&self) -> Arc<NodeIndex> {
        let mut kept = self.0.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, index)) = &*kept
            && at.elapsed() < INDEX_FRESH
        {
            return index.clone();
        }
        let sources = &self.0.sources;
        let index = Arc::new(NodeIndex::read(
            &sources.peers,
            &sources.status.borrow(),
            &sources.node,
        ));
        *kept = Some((Instant::now(), index.clone()));
        index
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
