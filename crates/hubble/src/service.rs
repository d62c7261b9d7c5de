//! The gRPC services, as one service of HTTP/2.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use prost::Message as _;
use tonic::{Request, Response, Status, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::{
    Demand, FlowRing,
    filter::Filters,
    flow::Flow,
    health::{HealthCheckRequest, HealthCheckResponse, ServingStatus},
    observer::{
        EncodedResponse, GetFlowsRequest, GetNamespacesRequest, GetNamespacesResponse,
        GetNodesRequest, GetNodesResponse, Namespace, Node, NodeState, ServerStatusRequest,
        ServerStatusResponse, Tls,
    },
    peer::{self, ChangeNotification, Notifications, NotifyRequest, PeerAddresses},
    ring::Entry,
    stream::{self, Flows},
};

/// The names of the observer for health checks: that of the service, and the one that clients of
/// Hubble ask for (`ObserverServiceName` in [pkg/hubble/api/v1/const.go, Cilium
/// 1.19.4](https://github.com/cilium/cilium/blob/v1.19.4/pkg/hubble/api/v1/const.go)).
const OBSERVER: [&str; 2] = ["observer.Observer", "hubble.server.Observer"];

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// Facts about the nodes, which only the agent knows.
pub trait NodeFacts: Send + Sync {
    /// The name of this node.
    fn name(&self) -> String;
    /// The names and addresses of the other nodes.
    fn others(&self) -> Vec<(String, String)>;
    /// The addresses with TLS of the observers of all nodes; `None` if this node has none, because
    /// those of the others are found by it.
    fn peers(&self) -> Option<PeerAddresses>;
}

/// The services. Clones share everything.
#[derive(Clone)]
pub struct ObserverService(Arc<Shared>);

struct Shared {
    ring: FlowRing,
    demand: Demand,
    facts: Box<dyn NodeFacts>,
    version: String,
    started: Instant,
}

impl ObserverService {
    /// The services on these flows.
    pub fn new(ring: FlowRing, demand: Demand, facts: Box<dyn NodeFacts>, version: &str) -> Self {
        Self(Arc::new(Shared {
            ring,
            demand,
            facts,
            version: version.to_owned(),
            started: Instant::now(),
        }))
    }

    async fn get_flows(self, request: Request<GetFlowsRequest>) -> Result<Response<Flows>, Status> {
        let request = request.into_inner();
        let filters = Filters::new(&request)?;
        let reading = self.0.demand.begin();
        stream::wait_until_primed(&self.0.ring).await;
        let flows = stream::flows(
            self.0.ring.clone(),
            request,
            filters,
            self.0.facts.name(),
            reading,
        );
        Ok(Response::new(flows))
    }

    fn notify(self) -> Result<Response<Notifications>, Status> {
        if self.0.facts.peers().is_none() {
            return Err(Status::failed_precondition(
                "this agent has no address with TLS, by which it would know those of the others; \
                 set --hubble-listen",
            ));
        }
        let nodes = move || self.0.facts.peers();
        Ok(Response::new(peer::notifications(nodes, peer::PERIOD)))
    }

    fn server_status(&self) -> ServerStatusResponse {
        let state = self.0.ring.state();
        ServerStatusResponse {
            num_flows: state.held,
            max_flows: state.capacity,
            seen_flows: state.seen,
            uptime_ns: self.uptime_ns(),
            num_connected_nodes: Some(1),
            num_unavailable_nodes: Some(0),
            version: self.0.version.clone(),
            flows_rate: state.rate,
        }
    }

    /// This node, and the others as their leases have them: this server does not connect to these.
    fn nodes(&self, is_tls: bool) -> GetNodesResponse {
        let state = self.0.ring.state();
        let own = Node {
            name: self.0.facts.name(),
            version: self.0.version.clone(),
            state: NodeState::Connected.into(),
            tls: Some(Tls { enabled: is_tls }),
            uptime_ns: self.uptime_ns(),
            num_flows: state.held,
            max_flows: state.capacity,
            seen_flows: state.seen,
            ..Node::default()
        };
        let other = |(name, address)| Node {
            name,
            address,
            state: NodeState::Unknown.into(),
            ..Node::default()
        };
        GetNodesResponse {
            nodes: [own]
                .into_iter()
                .chain(self.0.facts.others().into_iter().map(other))
                .collect(),
        }
    }

    /// The namespaces of the pods in the ring.
    fn namespaces(&self) -> GetNamespacesResponse {
        let (mut found, mut at) = (BTreeSet::new(), self.0.ring.oldest());
        loop {
            let batch = self.0.ring.read(at);
            if batch.entries.is_empty() {
                break;
            }
            at = batch.next;
            for entry in batch.entries {
                let Entry::Flow(bytes, _) = entry else {
                    continue;
                };
                let flow = Flow::decode(&*bytes).unwrap_or_default();
                let ends = [flow.source, flow.destination].into_iter().flatten();
                found.extend(
                    ends.map(|end| end.namespace)
                        .filter(|namespace| !namespace.is_empty()),
                );
            }
        }
        let namespace = |namespace| Namespace {
            cluster: String::new(),
            namespace,
        };
        GetNamespacesResponse {
            namespaces: found.into_iter().map(namespace).collect(),
        }
    }

    fn uptime_ns(&self) -> u64 {
        u64::try_from(self.0.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let is_tls = request.extensions().get::<crate::tls::OverTls>().is_some();
        match request.uri().path() {
            "/observer.Observer/GetFlows" => {
                let get = tower::service_fn(move |request| self.clone().get_flows(request));
                grpc::<GetFlowsRequest, EncodedResponse>()
                    .server_streaming(get, request)
                    .await
            }
            "/observer.Observer/ServerStatus" => {
                unary(request, move |_: ServerStatusRequest| {
                    Ok(self.server_status())
                })
                .await
            }
            "/observer.Observer/GetNodes" => {
                unary(request, move |_: GetNodesRequest| Ok(self.nodes(is_tls))).await
            }
            "/observer.Observer/GetNamespaces" => {
                unary(
                    request,
                    move |_: GetNamespacesRequest| Ok(self.namespaces()),
                )
                .await
            }
            "/peer.Peer/Notify" => {
                let notify = tower::service_fn(move |_: Request<NotifyRequest>| {
                    std::future::ready(self.clone().notify())
                });
                grpc::<NotifyRequest, ChangeNotification>()
                    .server_streaming(notify, request)
                    .await
            }
            "/grpc.health.v1.Health/Check" => unary(request, check_health).await,
            path => Status::unimplemented(format!(
                "{path} is not implemented: flannel has no such events"
            ))
            .into_http(),
        }
    }
}

fn check_health(
    HealthCheckRequest { service }: HealthCheckRequest,
) -> Result<HealthCheckResponse, Status> {
    if service.is_empty() || OBSERVER.contains(&service.as_str()) {
        return Ok(HealthCheckResponse {
            status: ServingStatus::Serving.into(),
        });
    }
    Err(Status::not_found(format!("there is no service {service}")))
}

fn grpc<Q, A>() -> Grpc<ProstCodec<A, Q>>
where
    Q: prost::Message + Default + Send + 'static,
    A: prost::Message + Send + 'static,
{
    Grpc::new(ProstCodec::default())
}

/// Answers one request with one message.
async fn unary<Q, A>(
    request: http::Request<Body>,
    answer: impl Fn(Q) -> Result<A, Status> + Clone + Send + 'static,
) -> http::Response<Body>
where
    Q: prost::Message + Default + Send + 'static,
    A: prost::Message + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Q>| {
        let answer = answer.clone();
        async move { answer(request.into_inner()).map(Response::new) }
    });
    grpc::<Q, A>().unary(service, request).await
}

impl Service<http::Request<Body>> for ObserverService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
