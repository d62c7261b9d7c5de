//! TLS to etcd: which files, and what they hold.
//!
//! The files are read for every new connection, so that renewed certificates serve without a
//! restart. A CA file replaces the system's roots; a client certificate is sent only with its key.
//! None of this concerns `http://` endpoints.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::time::Instant;

use super::cause::brief;
use crate::off_thread::{OffThread, Unfinished};

/// The time limit of [`TlsFiles::check`].
const CHECK: Duration = Duration::from_secs(15);

/// The files of an operator's choice, in PEM form. None at all: the system's roots, and no client
/// certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CA certificates that validate the servers'.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key.
    pub client: Option<ClientFiles>,
}

/// A client certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate, and those between it and its CA.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A file that TLS needs and cannot use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("cannot read {flag}={}: {source}", path.display())]
    Unreadable {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{flag}={} holds no {what} in PEM form", path.display())]
    Empty {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The kind of PEM section it should hold.
        what: &'static str,
    },
    /// Each file can be read, and TLS does not take them together.
    #[error(
        "--etcd-certfile={} and --etcd-keyfile={} cannot be used: {problem}; the key has to be the \
         certificate's",
        files.certificate.display(), files.key.display()
    )]
    Pair {
        /// The files.
        files: ClientFiles,
        /// The TLS library's message.
        problem: String,
    },
    /// They could not be read to their end.
    #[error("--etcd-cafile, --etcd-certfile or --etcd-keyfile: {0}")]
    Unfinished(#[from] Unfinished),
    /// Without any file of the operator's.
    #[error("TLS cannot be set up: {problem}; name the servers' CA with --etcd-cafile")]
    Roots {
        /// The TLS library's message.
        problem: String,
    },
}

impl TlsFiles {
    /// Returns true if no file was named.
    pub fn is_empty(&self) -> bool {
        self.ca.is_none() && self.client.is_none()
    }

    /// Reads the files and checks that TLS accepts them, without a connection.
    pub async fn check(&self) -> Result<(), TlsError> {
        let (end, files) = (Instant::now() + CHECK, self.clone());
        let read = OffThread::default().run(end, move || files.load()).await;
        let options = ConnectOptions::new().with_tls(read.map_err(TlsError::from)??);
        // No connection is made before the first request.
        Client::connect(["https://localhost"], Some(options))
            .await
            .map(drop)
            .map_err(|error| self.unfit(&error))
    }

    /// Reads the files.
    pub(super) fn load(&self) -> Result<TlsOptions, TlsError> {
        let tls = match &self.ca {
            Some(path) => TlsOptions::new()
                .ca_certificate(Certificate::from_pem(certificates("--etcd-cafile", path)?)),
            None => TlsOptions::new().with_native_roots(),
        };
        let Some(ClientFiles { certificate, key }) = &self.client else {
            return Ok(tls);
        };
        Ok(tls.identity(Identity::from_pem(
            certificates("--etcd-certfile", certificate)?,
            private_key(key)?,
        )))
    }

    /// Returns the error to report when the client refuses files that could be read.
    pub(super) fn unfit(&self, error: &Error) -> TlsError {
        let problem = brief(error);
        match self.client.clone() {
            Some(files) => TlsError::Pair { files, problem },
            None => TlsError::Roots { problem },
        }
    }
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let text = read(flag, path)?;
    let found = CertificateDer::pem_slice_iter(&text).any(|section| section.is_ok());
    if found {
        Ok(text)
    } else {
        Err(TlsError::Empty {
            flag,
            path: path.to_owned(),
            what: "certificate",
        })
    }
}

fn private_key(path: &Path) -> Result<Vec<u8>, TlsError> {
    let (flag, text) = ("--etcd-keyfile", read("--etcd-keyfile", path)?);
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(_) => Ok(text),
        Err(_) => Err(TlsError::Empty {
            flag,
            path: path.to_owned(),
            what: "unencrypted private key",
        }),
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        flag,
        path: path.to_owned(),
        source,
    })
}
