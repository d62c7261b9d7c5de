//! TLS with certificates of clients. The files are read again when they change, so that renewed
//! certificates need no restart.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::{VerifierBuilderError, WebPkiClientVerifier},
    },
};

/// The files of TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities whose clients may connect.
    pub client_ca: PathBuf,
}

/// The reason why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file has not the expected content.
    #[error("{} is not the PEM file that is expected", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// A certificate or a key cannot be used.
    #[error("certificate and key of the observer cannot be used")]
    Unusable(#[from] rustls::Error),
    /// The authorities cannot be used.
    #[error("the certificates of the clients' authorities cannot be used")]
    ClientCa(#[from] VerifierBuilderError),
}

/// Marks requests that came over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

/// Accepts connections by the files as they are.
pub(crate) struct Acceptor {
    files: TlsFiles,
    changed: [Option<SystemTime>; 3],
    tls: TlsAcceptor,
}

impl Acceptor {
    /// Reads the files.
    pub(crate) fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let changed = changed(&files);
        let tls = read(&files)?;
        Ok(Self {
            files,
            changed,
            tls,
        })
    }

    /// The acceptor by the present files. Files that cannot be used leave the earlier ones active.
    pub(crate) fn current(&mut self) -> TlsAcceptor {
        let now = changed(&self.files);
        if now != self.changed {
            self.changed = now;
            match read(&self.files) {
                Ok(tls) => self.tls = tls,
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "changed TLS files of the observer are not usable; the earlier ones stay active"
                ),
            }
        }
        self.tls.clone()
    }
}

fn changed(files: &TlsFiles) -> [Option<SystemTime>; 3] {
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    [&files.certificate, &files.key, &files.client_ca].map(changed)
}

fn read(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.client_ca)? {
        roots.add(authority)?;
    }
    let clients =
        WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build()?;
    let key = contents(&files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|source| bad(&files.key, source))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(&files.certificate)?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = contents(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|source| bad(path, source))?;
    if all.is_empty() {
        Err(bad(path, pem::Error::NoItemsFound))
    } else {
        Ok(all)
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

fn bad(path: &Path, source: pem::Error) -> TlsError {
    TlsError::Pem {
        path: path.to_owned(),
        source,
    }
}
