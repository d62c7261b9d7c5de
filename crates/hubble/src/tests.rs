//! Bytes of messages, and servers on a socket and with TLS, as clients see them.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

use super::{
    flow::{
        CiliumEventType, DropReason, Endpoint, Flow, FlowType, Ip, IpVersion, Layer4, Protocol,
        Tcp, TcpFlags, Timestamp, TrafficDirection, Verdict,
    },
    observer::{GetFlowsResponse, GetNodesResponse, ServerStatusResponse},
    peer::PeerAddresses,
    *,
};

fn flow() -> Flow {
    let tcp = Tcp {
        source_port: 1,
        destination_port: 2,
        flags: Some(TcpFlags::from_byte(0x02)),
    };
    let [a, b] = ["a", "b"].map(str::to_owned);
    Flow {
        time: Some(Timestamp {
            seconds: 1,
            nanos: 0,
        }),
        verdict: Verdict::Dropped.into(),
        ip: Some(Ip {
            source: a,
            destination: b,
            ip_version: IpVersion::V4.into(),
            ..Ip::default()
        }),
        l4: Some(Layer4 {
            protocol: Some(Protocol::Tcp(tcp)),
        }),
        source: Some(Endpoint {
            identity: 1,
            namespace: "n".to_owned(),
            pod_name: "p".to_owned(),
            ..Endpoint::default()
        }),
        r#type: FlowType::L3L4.into(),
        node_name: "x".to_owned(),
        event_type: Some(CiliumEventType {
            r#type: CiliumEventType::DROP,
            sub_type: 132,
        }),
        traffic_direction: TrafficDirection::Egress.into(),
        drop_reason_desc: DropReason::InvalidSourceIp.into(),
        is_reply: Some(true),
        summary: "s".to_owned(),
        ..Flow::default()
    }
}

/// Put together by hand from the numbers in flow.proto.
const FLOW: &[u8] = b"\x0a\x02\x08\x01\
    \x10\x02\
    \x2a\x08\x0a\x01a\x12\x01b\x18\x01\
    \x32\x0a\x0a\x08\x08\x01\x10\x02\x1a\x02\x10\x01\
    \x42\x08\x10\x01\x1a\x01n\x2a\x01p\
    \x50\x01\
    \x5a\x01x\
    \x9a\x01\x05\x08\x01\x10\x84\x01\
    \xb0\x01\x02\
    \xc8\x01\x84\x01\
    \xd2\x01\x02\x08\x01\
    \x82\xea\x30\x01s";

#[test]
fn a_flow_has_the_published_bytes() {
    assert_eq!(flow().encode_to_vec(), FLOW);
    assert_eq!(Flow::decode(FLOW), Ok(flow()));
}

#[test]
fn flags_of_tcp_are_those_of_the_header() {
    for byte in 0..=u8::MAX {
        assert_eq!(TcpFlags::from_byte(byte).to_byte(), byte);
    }
}

struct Nodes;

impl NodeFacts for Nodes {
    fn name(&self) -> String {
        "node-a".to_owned()
    }

    fn others(&self) -> Vec<(String, String)> {
        vec![("node-b".to_owned(), "192.168.1.12".to_owned())]
    }

    fn peers(&self) -> Option<PeerAddresses> {
        None
    }
}

fn service() -> (FlowRing, ObserverService) {
    let ring = FlowRing::new(8);
    ring.set_primed();
    ring.push(&flow());
    (
        ring.clone(),
        ObserverService::new(ring, Demand::default(), Box::new(Nodes), "0.1.0"),
    )
}

/// The body of an answer without its frame, and the status of gRPC.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: &str,
) -> Result<(Vec<u8>, String), hyper::Error> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    // An empty message: not compressed, of length zero.
    let request = hyper::Request::post(format!("http://localhost/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .expect("a request");
    let response = sender.send_request(request).await?;
    let early = response.headers().get("grpc-status").cloned();
    let body = response.into_body().collect().await?;
    let late = body
        .trailers()
        .and_then(|trailers| trailers.get("grpc-status"))
        .cloned();
    let status = early.or(late).expect("a status of gRPC");
    let bytes = body.to_bytes();
    Ok((
        bytes.get(5..).unwrap_or_default().to_vec(),
        status.to_str().expect("a number").to_owned(),
    ))
}

#[tokio::test]
async fn a_socket_answers_each_method_and_refuses_the_rest() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("hubble.sock");
    let server = Server::open(&[Listener::Unix(path.clone())]).expect("a socket");
    assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o660);
    let serving = tokio::spawn(server.serve(service().1));
    let answer = async |method: &str| {
        let stream = UnixStream::connect(&path).await.expect("a connection");
        ask(stream, method).await.expect("an answer")
    };
    let (bytes, status) = answer("observer.Observer/GetFlows").await;
    let response = GetFlowsResponse::decode(&*bytes).expect("a flow");
    assert_eq!(
        (status.as_str(), response.node_name.as_str()),
        ("0", "node-a")
    );
    // Field 1 is the flow.
    let length = u8::try_from(FLOW.len()).expect("short");
    assert!(bytes.starts_with(&[&[0x0a, length], FLOW].concat()));
    let (bytes, _) = answer("observer.Observer/ServerStatus").await;
    let status = ServerStatusResponse::decode(&*bytes).expect("a status");
    assert_eq!(
        (status.num_flows, status.max_flows, status.seen_flows),
        (1, 8, 1)
    );
    let (bytes, _) = answer("observer.Observer/GetNodes").await;
    let nodes = GetNodesResponse::decode(&*bytes).expect("nodes").nodes;
    let states: Vec<_> = nodes
        .iter()
        .map(|node| (node.name.as_str(), node.state))
        .collect();
    assert_eq!(states, [("node-a", 1), ("node-b", 0)]);
    let (bytes, _) = answer("observer.Observer/GetNamespaces").await;
    assert_eq!(bytes, b"\x0a\x03\x12\x01n", "a namespace n");
    assert_eq!(
        answer("grpc.health.v1.Health/Check").await,
        (b"\x08\x01".to_vec(), "0".to_owned()),
        "SERVING"
    );
    let (_, status) = answer("peer.Peer/Notify").await;
    assert_eq!(status, "9", "FAILED_PRECONDITION: nodes without TLS");
    for method in [
        "observer.Observer/GetAgentEvents",
        "observer.Observer/GetDebugEvents",
    ] {
        assert_eq!(
            answer(method).await,
            (Vec::new(), "12".to_owned()),
            "UNIMPLEMENTED: {method}"
        );
    }
    serving.abort();
}

#[tokio::test]
async fn one_connection_more_than_the_limit_is_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("hubble.sock");
    let serving = tokio::spawn(
        Server::open(&[Listener::Unix(path.clone())])
            .expect("a socket")
            .serve(service().1),
    );
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(UnixStream::connect(&path).await.expect("a connection"));
    }
    let stream = UnixStream::connect(&path).await.expect("a connection");
    assert!(ask(stream, "grpc.health.v1.Health/Check").await.is_err());
    serving.abort();
}

/// An authority, and files of certificates that it signed.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// Certificate and key for a name.
    fn issue(&self, name: &str) -> [String; 2] {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        [certificate.pem(), key.serialize_pem()]
    }
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("a file");
    path
}

/// Asks for health over TLS, with a client certificate or without.
async fn check(
    address: SocketAddr,
    servers: &Authority,
    client: Option<[String; 2]>,
) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(servers.certificate.as_bytes()).expect("PEM"))
        .expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match client {
        Some([certificate, key]) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM"),
            )
            .expect("a certificate"),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("node-a").expect("a name");
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    ask(stream, "grpc.health.v1.Health/Check")
        .await
        .map(|(_, status)| status)
        .map_err(io::Error::other)
}

#[tokio::test]
async fn tls_needs_a_certificate_of_the_clients_authority_and_takes_renewed_files() {
    let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let directory = tempfile::tempdir().expect("a directory");
    let [certificate, key] = servers.issue("node-a");
    let files = TlsFiles {
        certificate: write(directory.path(), "tls.crt", &certificate),
        key: write(directory.path(), "tls.key", &key),
        client_ca: write(directory.path(), "ca.crt", &clients.certificate),
    };
    let listener = Listener::Tls(SocketAddr::from(([127, 0, 0, 1], 0)), files.clone());
    let server = Server::open(&[listener]).expect("a listener");
    let address = server.addresses()[0];
    let serving = tokio::spawn(server.serve(service().1));
    assert_eq!(
        check(address, &servers, Some(clients.issue("relay")))
            .await
            .expect("an answer"),
        "0"
    );
    assert!(
        check(address, &servers, None).await.is_err(),
        "without a certificate"
    );
    assert!(
        check(address, &servers, Some(strangers.issue("relay")))
            .await
            .is_err(),
        "of another authority"
    );
    // The time of a file has the resolution of the kernel's tick, so it is set.
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
    write(directory.path(), "ca.crt", &strangers.certificate);
    fs::File::options()
        .append(true)
        .open(&files.client_ca)
        .and_then(|file| file.set_modified(later))
        .expect("a time");
    assert_eq!(
        check(address, &servers, Some(strangers.issue("relay")))
            .await
            .expect("an answer"),
        "0"
    );
    write(directory.path(), "ca.crt", "garbage");
    assert_eq!(
        check(address, &servers, Some(strangers.issue("relay")))
            .await
            .expect("an answer"),
        "0",
        "stays"
    );
    serving.abort();
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let files = TlsFiles {
        certificate: missing.clone(),
        key: missing.clone(),
        client_ca: missing,
    };
    let opened = Server::open(&[Listener::Tls(SocketAddr::from(([127, 0, 0, 1], 0)), files)]);
    let Err(ListenError::Tls { source, .. }) = opened else {
        panic!("opened")
    };
    assert!(source.to_string().contains("missing"), "{source}");
}
