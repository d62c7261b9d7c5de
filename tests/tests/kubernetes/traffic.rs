//! Traffic between pods while something happens to the cluster.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Host,
    host::joined,
    kubernetes::{Kubernetes, PodOnNode},
    load::{UdpLoad, UdpRun},
};

use super::paths::{self, LABEL};

/// As long as a test may send; the longest wait of those that watch it is shorter.
const LONGEST: Duration = Duration::from_mins(8);
const PACKETS_A_SECOND: u32 = 200;
const BETWEEN_REQUESTS: Duration = Duration::from_millis(50);
/// A SYN that is lost is sent again after a second, so this separates loss from load.
const ANSWER: Duration = Duration::from_secs(5);

/// Datagrams from the first node's pod to the second's and from the third's to the first's, and
/// requests of the first to a Service.
pub(crate) struct Traffic {
    start: Instant,
    streams: Vec<UdpRun>,
    requests: Requests,
}

impl Traffic {
    pub(crate) fn start(cluster: &Kubernetes) -> Result<Self> {
        let pods = cluster.pods(LABEL)?;
        let [first, second, third] = &pods[..] else {
            anyhow::bail!("servers: {pods:?}")
        };
        let stream = |from: &PodOnNode, to: &PodOnNode| {
            let load = UdpLoad {
                pps: PACKETS_A_SECOND,
                duration: LONGEST,
                payload: 64,
            };
            UdpRun::start(from, to, IpAddr::V4(to.address()), load)
        };
        let service = paths::service(cluster, "web")?;
        Ok(Self {
            start: Instant::now(),
            streams: vec![stream(first, second)?, stream(third, first)?],
            requests: Requests::start(first, SocketAddr::new(service.parse()?, 80))?,
        })
    }

    /// Ends it. Every datagram arrived and every request was answered, up to now.
    pub(crate) fn expect_complete(self) -> Result<()> {
        let lasted = self.start.elapsed();
        ensure!(
            lasted < LONGEST,
            "the traffic ended before what it was to see: {lasted:?}"
        );
        let answered = self.requests.stop()?;
        ensure!(answered > 0, "no request was answered");
        for stream in self.streams {
            let report = stream.stop()?;
            report.expect_complete()?;
            println!(
                "{} datagrams arrived, {answered} requests were answered in {lasted:?}",
                report.received
            );
        }
        Ok(())
    }
}

/// Requests to an HTTP server, each over a new connection.
struct Requests {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u32>>,
}

impl Requests {
    fn start(from: &Host, server: SocketAddr) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = from.thread(move || {
            let start = Instant::now();
            let mut answered = 0;
            while !stopped.load(Ordering::Relaxed) && start.elapsed() < LONGEST {
                request(server).with_context(|| {
                    format!("request {answered}, {:?} after the first", start.elapsed())
                })?;
                answered += 1;
                thread::sleep(BETWEEN_REQUESTS);
            }
            Ok(answered)
        })?;
        Ok(Self { stop, thread })
    }

    /// The number of answers; an error if one was missing.
    fn stop(self) -> Result<u32> {
        self.stop.store(true, Ordering::Relaxed);
        joined(self.thread)
    }
}

fn request(server: SocketAddr) -> Result<()> {
    let mut connection = TcpStream::connect_timeout(&server, ANSWER)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    Ok(())
}
