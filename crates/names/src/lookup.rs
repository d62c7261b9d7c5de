//! The thread that looks names up.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use flannel_firewall::services;
use flannel_host::{error_chain::chain, family::Family};
use flannel_store::kube::{KubeOptions, PodLister};
use tokio::{
    runtime,
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    cache::{Cache, LookupOutcome, NameTable},
    cni_results, hosts,
    node_index::NodeId,
};

/// Without a question for this long, the connection to the API server is closed.
const IDLE: Duration = Duration::from_mins(1);
/// The longest time for one look-up.
const DEADLINE: Duration = Duration::from_secs(10);
/// Look-ups that wait. More are left out, and asked for again later.
const QUEUE: usize = 512;

/// A question.
#[derive(Debug)]
pub(super) enum LookupQuestion {
    Pods(NodeId),
    Services,
    Hosts,
}

/// The questions, and the sign that an answer was kept.
#[derive(Debug)]
pub(super) struct LookupThread {
    pub(super) questions: mpsc::Sender<LookupQuestion>,
    pub(super) answered: watch::Receiver<u64>,
}

impl LookupThread {
    /// Starts the thread. It ends with its questions.
    pub(super) fn start(
        cache: Arc<Mutex<Cache>>,
        kube: Option<KubeOptions>,
        hosts: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let ((questions, asked), (counted, answered)) = (mpsc::channel(QUEUE), watch::channel(0));
        let lookup = Lookup {
            cache,
            kube,
            lister: None,
            hosts,
            counted,
        };
        std::thread::Builder::new()
            .name("names".to_owned())
            .spawn(move || runtime.block_on(lookup.run(asked)))?;
        Ok(Self {
            questions,
            answered,
        })
    }
}

struct Lookup {
    cache: Arc<Mutex<Cache>>,
    kube: Option<KubeOptions>,
    lister: Option<PodLister>,
    hosts: Option<PathBuf>,
    counted: watch::Sender<u64>,
}

impl Lookup {
    async fn run(mut self, mut questions: mpsc::Receiver<LookupQuestion>) {
        loop {
            match timeout(IDLE, questions.recv()).await {
                Ok(Some(question)) => self.answer(question).await,
                Ok(None) => return,
                Err(_idle) => {
                    self.lister = None;
                    match questions.recv().await {
                        Some(question) => self.answer(question).await,
                        None => return,
                    }
                }
            }
            self.counted.send_modify(|answers| *answers += 1);
        }
    }

    async fn answer(&mut self, question: LookupQuestion) {
        match question {
            LookupQuestion::Pods(node) => {
                let (outcome, names) = self.pods(&node).await;
                self.keep(|cache, now| cache.set_pods(node.key, outcome, names, now));
            }
            LookupQuestion::Services => {
                let names = timeout(DEADLINE, service_names()).await.unwrap_or_default();
                self.keep(|cache, now| cache.set_services(names, now));
            }
            LookupQuestion::Hosts => {
                let names = self.hosts.as_deref().map(host_names).unwrap_or_default();
                self.keep(|cache, now| cache.set_hosts(names, now));
            }
        }
    }

    /// The pods of a node: this node's also from the results of CNI.
    async fn pods(&mut self, node: &NodeId) -> (LookupOutcome, NameTable) {
        let kept = if node.is_own {
            cni_results::read(Path::new(cni_results::DIRECTORY))
        } else {
            NameTable::new()
        };
        if !kept.is_empty() {
            return (LookupOutcome::Listed, kept);
        }
        let Some((options, name)) = self.kube.as_ref().zip(node.name()) else {
            return (LookupOutcome::Listed, kept);
        };
        let lister = self
            .lister
            .get_or_insert_with(|| PodLister::new(options.clone()));
        match timeout(DEADLINE, lister.pods_of(name)).await {
            Ok(Ok(names)) => (LookupOutcome::Listed, names),
            Ok(Err(error)) => {
                tracing::debug!(
                    error = chain(&error),
                    node = name,
                    "the pods of a node are not known"
                );
                (
                    if error.is_refusal() {
                        LookupOutcome::Refused
                    } else {
                        LookupOutcome::Failed
                    },
                    NameTable::new(),
                )
            }
            Err(_elapsed) => (LookupOutcome::Failed, NameTable::new()),
        }
    }

    fn keep(&self, keep: impl FnOnce(&mut Cache, Instant)) {
        keep(
            &mut self.cache.lock().unwrap_or_else(PoisonError::into_inner),
            Instant::now(),
        );
    }
}

fn host_names(path: &Path) -> NameTable {
    hosts::read(path).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %path.display(), "cannot read the names of hosts \
            (--hosts-file)");
        NameTable::new()
    })
}

/// The names of Services by the rules of kube-proxy; none if they cannot be read.
async fn service_names() -> BTreeMap<IpAddr, String> {
    let mut names = BTreeMap::new();
    for family in Family::BOTH {
        match services::service_names(family).await {
            Ok(found) => names.extend(
                found
                    .into_iter()
                    .filter_map(|(address, name)| Some((address, services::without_port(&name)?))),
            ),
            Err(error) => tracing::debug!(error, "the names of Services are not known"),
        }
    }
    names
}
