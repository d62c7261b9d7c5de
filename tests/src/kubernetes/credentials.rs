//! Certificates of the cluster, all of one authority, and the files by which its parts know each
//! other.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde_json::json;

/// An authority, and the directory of what it signs.
#[derive(Debug)]
pub(super) struct Credentials {
    dir: PathBuf,
    api: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Credentials {
    /// With certificates of the API server at `api`, which has the cluster's address `service` too.
    pub(super) fn new(dir: PathBuf, api: Ipv4Addr, service: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "lab");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(dir.join("ca.crt"), issuer.pem())?;
        fs::write(dir.join("ca.key"), issuer.key().serialize_pem())?;
        let tokens = KeyPair::generate()?;
        fs::write(dir.join("tokens.key"), tokens.serialize_pem())?;
        fs::write(dir.join("tokens.pub"), tokens.public_key_pem())?;
        let credentials = Self {
            dir,
            api: format!("https://{api}:6443"),
            issuer,
        };
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            service,
            "127.0.0.1",
        ];
        let names = names
            .map(str::to_owned)
            .into_iter()
            .chain([api.to_string()]);
        credentials.sign("apiserver", "kube-apiserver", None, names.collect())?;
        credentials.sign(
            "kubelet-client",
            "kube-apiserver-kubelet-client",
            Some("system:masters"),
            Vec::new(),
        )?;
        credentials.sign("proxy-client", "front-proxy-client", None, Vec::new())?;
        credentials.client("admin", "admin", Some("system:masters"), Vec::new())?;
        for part in ["kube-controller-manager", "kube-scheduler", "kube-proxy"] {
            credentials.client(part, &format!("system:{part}"), None, Vec::new())?;
        }
        Ok(credentials)
    }

    /// Those of a node: its certificate as a server and as a client, and its kubeconfig.
    pub(super) fn node(&self, name: &str, address: Ipv4Addr) -> Result<()> {
        let names = vec![name.to_owned(), address.to_string()];
        self.client(
            name,
            &format!("system:node:{name}"),
            Some("system:nodes"),
            names,
        )
    }

    /// A file of the authority or of what it signed.
    pub(super) fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The kubeconfig of a client.
    pub(super) fn kubeconfig(&self, client: &str) -> String {
        self.file(&format!("{client}.kubeconfig"))
    }

    fn client(
        &self,
        name: &str,
        user: &str,
        group: Option<&str>,
        names: Vec<String>,
    ) -> Result<()> {
        self.sign(name, user, group, names)?;
        let cluster = json!({ "server": self.api, "certificate-authority": self.file("ca.crt") });
        let user = json!({
            "client-certificate": self.file(&format!("{name}.crt")),
            "client-key": self.file(&format!("{name}.key")),
        });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "lab", "cluster": cluster }],
            "users": [{ "name": name, "user": user }],
            "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": name } }],
            "current-context": "lab",
        });
        let path = self.kubeconfig(name);
        fs::write(&path, config.to_string()).context(path)
    }

    /// Signs a certificate for servers of these names and for clients; writes it with its key.
    fn sign(
        &self,
        file: &str,
        name: &str,
        organization: Option<&str>,
        names: Vec<String>,
    ) -> Result<()> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(organization) = organization {
            params
                .distinguished_name
                .push(DnType::OrganizationName, organization);
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let write = |end: &str, text: String| {
            let path: &Path = &self.dir.join(format!("{file}.{end}"));
            fs::write(path, text).with_context(|| path.display().to_string())
        };
        write("crt", certificate.pem())?;
        write("key", key.serialize_pem())
    }
}
