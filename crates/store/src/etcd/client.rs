//! The connection to etcd: one endpoint at a time, with fail-over and deadlines.
//!
//! A balancing channel would send every second request to a dead endpoint (stock flannel's default
//! list has one), so we stay with the endpoint that works and turn to the next when it does not.
//! Every request has a deadline. The watch has none; pings on the connection notice a peer that is
//! gone.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, TlsOptions};
use tokio::time::{Instant, timeout_at};

use super::{
    error::{EtcdError, Problem},
    options::{Credentials, EtcdOptions, is_tls},
    tls::{TlsError, TlsFiles},
};
use crate::off_thread::OffThread;

/// Timeouts and intervals for detecting a server that is silent or was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// For one request at one endpoint, connecting included.
    pub deadline: Duration,
    /// Between pings on an idle connection. Servers refuse clients that ping more often than every
    /// 5 s.
    pub ping: Duration,
    /// For the answer to a ping.
    pub pong: Duration,
    /// Between looks whether the store is still the one we know, while its watch goes on.
    pub verify: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        // A request may wait for its deadline first. A silent member must be noticed within 15 s.
        let [deadline, ping, pong] = [5, 6, 4].map(Duration::from_secs);
        Self {
            deadline,
            ping,
            pong,
            verify: Duration::from_mins(5),
        }
    }
}

/// A client that survives its endpoints.
pub(super) struct EtcdClient {
    endpoints: Vec<String>,
    tls: TlsFiles,
    /// Reads the files of TLS.
    files: OffThread,
    credentials: Option<Credentials>,
    liveness: Liveness,
    current: usize,
    connection: Option<Client>,
}

impl EtcdClient {
    pub(super) fn new(options: &EtcdOptions, liveness: Liveness) -> Self {
        let EtcdOptions {
            endpoints,
            tls,
            credentials,
            ..
        } = options.clone();
        Self {
            endpoints,
            tls,
            files: OffThread::default(),
            credentials,
            liveness,
            current: 0,
            connection: None,
        }
    }

    pub(super) fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Sends a request, at each endpoint once if need be. `request` may run several times, and an
    /// attempt that failed may have taken effect.
    pub(super) async fn call<T, F>(
        &mut self,
        what: &'static str,
        request: impl Fn(Client) -> F + Send + Sync,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        let mut tries = self.endpoints.len();
        loop {
            tries = tries.saturating_sub(1);
            match self.attempt(&request).await {
                Ok(answer) => return Ok(answer),
                Err(problem) if problem.is_unreachable() && tries > 0 => self.give_up_endpoint(),
                Err(problem) => return Err(self.failed(what, problem)),
            }
        }
    }

    /// Leaves the current endpoint, because it failed outside of [`Self::call`].
    pub(super) fn give_up_endpoint(&mut self) {
        self.connection = None;
        self.current = (self.current + 1) % self.endpoints.len().max(1);
    }

    /// Makes the next request on a new connection to the same endpoint.
    pub(super) fn forget_connection(&mut self) {
        self.connection = None;
    }

    /// Turns a problem into the error to report, and leaves the endpoint unless it said no on
    /// purpose.
    pub(super) fn failed(&mut self, what: &'static str, problem: Problem) -> EtcdError {
        if problem.is_unreachable() {
            self.give_up_endpoint();
            return EtcdError::Unreachable {
                endpoints: self.endpoints.clone(),
                what,
                problem,
            };
        }
        // A refusal may be caused by an outdated token: authenticate again next time.
        self.connection = None;
        EtcdError::Refused {
            endpoint: self.endpoint().to_owned(),
            what,
            problem,
        }
    }

    async fn attempt<T, F>(&mut self, request: impl Fn(Client) -> F) -> Result<T, Problem>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = self.liveness.deadline;
        let end = Instant::now() + deadline;
        // Before the request's own limit, so that files that hang are the reason and not the
        // server.
        let files = self.read_files(end).await?;
        // On the heap: the client's futures are many kilobytes, and every caller would carry one
        // per request.
        let whole = Box::pin(async { Ok(request(self.connect(files).await?).await?) });
        timeout_at(end, whole)
            .await
            .unwrap_or(Err(Problem::Deadline(deadline)))
    }

    /// Reads the files of TLS for a new connection; `None` if none is made, or without TLS.
    async fn read_files(&self, end: Instant) -> Result<Option<TlsOptions>, Problem> {
        if self.connection.is_some() || !is_tls(self.endpoint()) {
            return Ok(None);
        }
        let tls = self.tls.clone();
        let read = self
            .files
            .run(end, move || tls.load())
            .await
            .map_err(TlsError::from);
        Ok(Some(read??))
    }

    async fn connect(&mut self, files: Option<TlsOptions>) -> Result<Client, Problem> {
        if let Some(client) = &self.connection {
            return Ok(client.clone());
        }
        let mut options = self.connect_options();
        if let Some(files) = files {
            options = options.with_tls(files);
        }
        let client = Client::connect([self.endpoint()], Some(options))
            .await
            .map_err(|error| match error {
                // No request was sent yet, so the error concerns the TLS files of the connection.
                Error::TransportError(_) if is_tls(self.endpoint()) => {
                    Problem::from(self.tls.unfit(&error))
                }
                error => error.into(),
            })?;
        Ok(self.connection.insert(client).clone())
    }

    fn endpoint(&self) -> &str {
        self.endpoints.get(self.current).map_or("", String::as_str)
    }

    fn connect_options(&self) -> ConnectOptions {
        let Liveness {
            deadline,
            ping,
            pong,
            ..
        } = self.liveness;
        let options = ConnectOptions::new()
            .with_connect_timeout(deadline)
            .with_keep_alive(ping, pong)
            // Servers count pings without an open stream as abuse.
            .with_keep_alive_while_idle(false)
            // A member cut off from the others would let us wait for changes that never come.
            .with_require_leader(true);
        match &self.credentials {
            Some(Credentials { username, password }) => options
                .with_user(username, password.reveal())
                .with_auto_token_refresh(true),
            None => options,
        }
    }
}
