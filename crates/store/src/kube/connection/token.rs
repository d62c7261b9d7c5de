//! The bearer token that a file holds: the service account's, or a kubeconfig's `tokenFile`.
//!
//! The client library sends the file's content as it is and refuses a final newline, which no HTTP
//! header may have. client-go trims it (`transport/token_source.go`), so files with one are in use.
//! As there, the file is read again once a minute, and its last token is kept while it cannot be
//! read.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::config::AuthInfo;
use tokio::task::spawn_blocking;
use tower::{Layer, Service};

/// The period after which the file is read again. Kubelet replaces a token at 80 % of its lifetime
/// of at least ten minutes.
const PERIOD: Duration = Duration::from_mins(1);

/// The token of a file. Clones share it.
#[derive(Clone)]
pub(in crate::kube) struct TokenFile {
    path: PathBuf,
    current: Arc<Mutex<Current>>,
}

struct Current {
    header: HeaderValue,
    read_at: Instant,
    /// True while a thread reads the file. One that waits for a file system cannot be ended, so
    /// there is one at most.
    is_being_read: bool,
}

impl TokenFile {
    /// Takes the token file out of the credentials of the client library, if they use one, and
    /// reads it.
    pub(in crate::kube) fn take(credentials: &mut AuthInfo) -> Result<Option<Self>, String> {
        // The library prefers an inline token.
        if credentials.token.is_some() {
            return Ok(None);
        }
        credentials
            .token_file
            .take()
            .map(|path| Self::open(path.into(), Instant::now()))
            .transpose()
    }

    fn open(path: PathBuf, now: Instant) -> Result<Self, String> {
        let header =
            read(&path).map_err(|problem| format!("token file {}: {problem}", path.display()))?;
        Ok(Self {
            path,
            current: Arc::new(Mutex::new(Current {
                header,
                read_at: now,
                is_being_read: false,
            })),
        })
    }

    /// Returns the token, and true if it is time to read the file again.
    fn header(&self, now: Instant) -> (HeaderValue, bool) {
        let mut current = self.lock();
        let is_due =
            !current.is_being_read && now.saturating_duration_since(current.read_at) >= PERIOD;
        if is_due {
            current.read_at = now;
            current.is_being_read = true;
        }
        (current.header.clone(), is_due)
    }

    /// Reads the file again. It may be on a file system that hangs, so this is not for the thread
    /// that sends requests.
    fn refresh(&self) {
        let read = read(&self.path);
        let mut current = self.lock();
        current.is_being_read = false;
        if let Ok(header) = read {
            current.header = header;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<HeaderValue, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let token = text.trim();
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header
        .map_err(|_invalid| "the token has characters that no HTTP header may have".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

/// Adds the token of a file to each request, if there is one.
pub(in crate::kube) struct AddToken(pub(in crate::kube) Option<TokenFile>);

impl<S> Layer<S> for AddToken {
    type Service = TokenService<S>;

    fn layer(&self, inner: S) -> TokenService<S> {
        TokenService {
            inner,
            token: self.0.clone(),
        }
    }
}

/// A service whose requests have a token.
pub(in crate::kube) struct TokenService<S> {
    inner: S,
    token: Option<TokenFile>,
}

impl<S: Service<Request<A>>, A> Service<Request<A>> for TokenService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> S::Future {
        if let Some(token) = &self.token {
            let (header, is_due) = token.header(Instant::now());
            request.headers_mut().insert(AUTHORIZATION, header);
            if is_due {
                let token = token.clone();
                spawn_blocking(move || token.refresh());
            }
        }
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_trimmed_and_read_once_a_minute() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("token");
        let write = |text: &str| fs::write(&path, text).expect("written");
        let start = Instant::now();
        write(" first\r\n");
        let token = TokenFile::open(path.clone(), start).expect("a token");
        let at = |seconds| {
            let (header, is_due) = token.header(start + Duration::from_secs(seconds));
            if is_due {
                token.refresh();
                return token.header(start).0;
            }
            header
        };
        write("second\n");
        assert_eq!(
            (at(59), at(60)),
            (
                HeaderValue::from_static("Bearer first"),
                "Bearer second".parse().expect("one")
            )
        );
        for unusable in ["", "\n", "a\nb"] {
            write(unusable);
            assert_eq!(at(200), "Bearer second", "{unusable:?}");
            assert!(
                TokenFile::open(path.clone(), start).is_err(),
                "{unusable:?}"
            );
        }
        assert!(at(0).is_sensitive());
    }

    #[test]
    fn a_file_that_hangs_is_waited_for_by_one_thread() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("token");
        fs::write(&path, "first").expect("written");
        let start = Instant::now();
        let token = TokenFile::open(path, start).expect("a token");
        let is_due = |seconds| token.header(start + Duration::from_secs(seconds)).1;
        assert_eq!(
            [60, 120, 600].map(is_due),
            [true, false, false],
            "the first read is not back"
        );
        token.refresh();
        assert!(is_due(700));
    }
}
