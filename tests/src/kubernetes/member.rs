//! A node of the cluster: containerd, kubelet and kube-proxy on a machine of the lab.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    ops::Deref,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    control_plane::{DUAL_STACK, PODS, PODS_V6},
    credentials::Credentials,
    parts::Parts,
};
use crate::{ChildGuard, Host, Lab, Node, eventually};

/// The programs of containerd are cold, and the machine compiles.
const RUNTIME_LIMIT: Duration = Duration::from_mins(1);
/// An image of some hundred megabytes.
const IMPORT_LIMIT: Duration = Duration::from_mins(3);
/// The standard CNI plugins, which a node of Kubernetes has before any network.
const PLUGINS: &str = "/usr/lib/cni";

/// A machine that is a node of the cluster.
#[derive(Debug)]
pub struct Member {
    node: Node,
    address: Ipv4Addr,
    v6: Ipv6Addr,
    /// Its programs, with the names and command lines they were started with.
    programs: Mutex<Vec<(String, Vec<String>, ChildGuard)>>,
}

impl Deref for Member {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Member {
    /// A machine with an address, and nothing on it yet.
    pub(super) fn new(
        lab: &Lab,
        switch: &Node,
        name: &str,
        (address, v6): (Ipv4Addr, Ipv6Addr),
        (gateway, gateway_v6): (Ipv4Addr, Ipv6Addr),
    ) -> Result<Self> {
        let node = lab.machine(name)?;
        // From the switch, which knows processes by the numbers they have outside machines.
        lab.link(switch, &format!("port-{name}"), &node, "eth0")?;
        switch.sh(&format!("ip link set port-{name} master br0"))?;
        node.address("eth0", &format!("{address}/24"), Some(&gateway.to_string()))?;
        node.address("eth0", &format!("{v6}/64"), Some(&gateway_v6.to_string()))?;
        node.filter_bridged()?;
        node.run([
            "sh",
            "-c",
            &format!("printf '127.0.0.1 localhost\\n{address} {name}\\n' > /etc/hosts"),
        ])?;
        Ok(Self {
            node,
            address,
            v6,
            programs: Mutex::default(),
        })
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts containerd, and imports the images.
    pub(super) fn start_runtime(&self, parts: &Parts) -> Result<()> {
        self.write("/etc/containerd.toml", CONTAINERD)?;
        self.run([
            "sh",
            "-c",
            &format!("mkdir -p /etc/cni/net.d /opt/cni/bin && cp -n {PLUGINS}/* /opt/cni/bin/"),
        ])?;
        self.start(
            "containerd",
            parts,
            ["containerd", "--config=/etc/containerd.toml"]
                .map(str::to_owned)
                .to_vec(),
        )?;
        let ctr = parts.program("ctr");
        eventually("an answer of containerd", RUNTIME_LIMIT, || {
            self.run([ctr.as_str(), "version"])
        })?;
        parts
            .images()?
            .iter()
            .try_for_each(|archive| self.import(parts, archive))
    }

    /// Imports the images of an archive into its container runtime.
    pub fn import(&self, parts: &Parts, archive: &Path) -> Result<()> {
        let (ctr, archive) = (parts.program("ctr"), archive.display().to_string());
        let import = [
            ctr.as_str(),
            "--namespace=k8s.io",
            "images",
            "import",
            &archive,
        ];
        self.command(import).limit(IMPORT_LIMIT).run().map(drop)
    }

    /// Starts what makes the machine a node.
    pub(super) fn join(&self, parts: &Parts, credentials: &Credentials) -> Result<()> {
        credentials.node(self.name(), self.address)?;
        self.write(
            "/etc/kubelet.json",
            &kubelet_config(self.name(), credentials),
        )?;
        self.start("kubelet", parts, self.kubelet(credentials))?;
        self.start("kube-proxy", parts, self.kube_proxy(credentials))
    }

    /// Ends kubelet and starts it again, which registers the node.
    pub fn restart_kubelet(&self) -> Result<()> {
        let mut programs = self.programs();
        let (what, line, child) = programs
            .iter_mut()
            .find(|(what, ..)| what == "kubelet")
            .context("kubelet was not started")?;
        child.kill9()?;
        *child = self.spawn(what, line.clone())?;
        Ok(())
    }

    /// The network namespace of the pod with this address, as a host.
    pub(super) fn pod(&self, name: &str, address: Ipv4Addr) -> Result<Host> {
        let files =
            fs::read_dir(self.outside_path("/run/netns")).context("network namespaces of pods")?;
        let names = files
            .filter_map(Result::ok)
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .map(|network| self.container(name, &network))
            .find(|host| {
                // One that is just going has no devices any more.
                let found = host.run(["ip", "-4", "-oneline", "address", "show", "dev", "eth0"]);
                found.is_ok_and(|output| output.stdout.contains(&format!(" {address}/")))
            })
            .with_context(|| format!("{}: no pod has the address {address}", self.name()))
    }

    fn kubelet(&self, credentials: &Credentials) -> Vec<String> {
        vec![
            "kubelet".to_owned(),
            "--config=/etc/kubelet.json".to_owned(),
            format!("--kubeconfig={}", credentials.kubeconfig(self.name())),
            format!("--hostname-override={}", self.name()),
            format!("--node-ip={},{}", self.address, self.v6),
            "--container-runtime=remote".to_owned(),
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock".to_owned(),
            "--volume-plugin-dir=/var/lib/kubelet/volume-plugins".to_owned(),
        ]
    }

    fn kube_proxy(&self, credentials: &Credentials) -> Vec<String> {
        vec![
            "kube-proxy".to_owned(),
            format!("--kubeconfig={}", credentials.kubeconfig("kube-proxy")),
            format!("--hostname-override={}", self.name()),
            format!("--cluster-cidr={PODS},{PODS_V6}"),
            format!("--feature-gates={DUAL_STACK}=true"),
            "--proxy-mode=iptables".to_owned(),
            // The whole kernel's, not this machine's.
            "--conntrack-max-per-core=0".to_owned(),
            "--oom-score-adj=0".to_owned(),
        ]
    }

    /// Starts a program that runs for as long as the node is up.
    fn start(&self, what: &str, parts: &Parts, command: Vec<String>) -> Result<()> {
        let path = format!(
            "PATH={}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            parts.bin().display()
        );
        let line: Vec<String> = ["env".to_owned(), path]
            .into_iter()
            .chain(command)
            .collect();
        let child = self.spawn(what, line.clone())?;
        self.programs().push((what.to_owned(), line, child));
        Ok(())
    }

    fn programs(&self) -> MutexGuard<'_, Vec<(String, Vec<String>, ChildGuard)>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        fs::write(self.outside_path(path), text).with_context(|| format!("{}: {path}", self.name()))
    }
}

/// The lab may not raise what protects a process from the kernel's out-of-memory killer.
const CONTAINERD: &str = r#"
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "k8s.gcr.io/pause:3.2"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"#;

fn kubelet_config(name: &str, credentials: &Credentials) -> String {
    serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": credentials.file("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": credentials.file(&format!("{name}.crt")),
        "tlsPrivateKeyFile": credentials.file(&format!("{name}.key")),
        "cgroupDriver": "cgroupfs",
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "featureGates": { DUAL_STACK: true },
        "failSwapOn": false,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
    })
    .to_string()
}
