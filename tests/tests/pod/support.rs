//! The agent's process as a pod: with its own network and mount namespaces, the service account
//! where the kubelet puts it, and the cluster's API server by TLS.

use std::{
    fs,
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use flannel_tests::{agent::ask_status, agent_binary, harness::wait::patient};
use nix::{
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use super::{api_server::Double, certs::Authority};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}"#;

/// The only directory in which the client library looks for a service account.
pub(crate) const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
const LOG: &str = "/run/agent.log";

/// The pod and its cluster. Only ever on the thread whose namespaces it is in.
pub(crate) struct Pod {
    pub(crate) double: Double,
    pub(crate) authority: Authority,
    agent: Option<Child>,
    _scratch: TempDir,
}

/// Runs a test in a pod with `eth0`: 192.0.2.1/24.
pub(crate) fn in_pod(test: impl AsyncFnOnce(Pod) + Send + 'static) {
    let in_its_own_namespaces = move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("root may unshare");
        for line in [
            "mount --make-rprivate /",
            "mount -t sysfs sysfs /sys",
            "mount -t bpf bpf /sys/fs/bpf",
            "mount -t tmpfs -o mode=0755 tmpfs /run",
            "ip link set lo up",
            "ip link add eth0 type veth peer name peer0",
            "ip link set peer0 up",
            "ip link set eth0 up",
            "ip addr add 192.0.2.1/24 dev eth0",
            "ip route add default via 192.0.2.254",
        ] {
            run(line);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async { test(Pod::new().await).await });
    };
    if let Err(panic) = std::thread::spawn(in_its_own_namespaces).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command, words between spaces.
pub(crate) fn run(line: &str) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()
        .expect(line);
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Pod {
    async fn new() -> Self {
        let scratch = tempfile::tempdir_in("/run").expect("a directory");
        let authority = Authority::new(scratch.path(), "cluster");
        let double = Double::start_tls(acceptor(&authority)).await;
        fs::create_dir_all(ACCOUNT).expect("a directory");
        fs::write("/run/net-conf.json", CONFIG).expect("written");
        let pod = Self {
            double,
            authority,
            agent: None,
            _scratch: scratch,
        };
        Self::mount("namespace", "kube-flannel");
        let trusted = fs::read_to_string(pod.authority.file()).expect("a certificate");
        Self::mount("ca.crt", &trusted);
        Self::mount("token", "first");
        pod
    }

    /// Puts a file of the service account in place, whole, as the kubelet does.
    pub(crate) fn mount(name: &str, text: &str) {
        let (new, path) = (
            Path::new(ACCOUNT).join("..new"),
            Path::new(ACCOUNT).join(name),
        );
        fs::write(&new, text).expect("written");
        fs::rename(new, path).expect("renamed");
    }

    /// Starts the agent of the Node `own`.
    pub(crate) fn start(&mut self) {
        self.start_with(&[]);
    }

    /// The same, with more flags.
    pub(crate) fn start_with(&mut self, flags: &[&str]) {
        let log = File::create(LOG).expect("a file");
        let child = Self::command(&[])
            .args([
                "run",
                "--kube-subnet-mgr",
                "--iface=eth0",
                "--net-config-path=/run/net-conf.json",
                "-v=1",
            ])
            .args(flags)
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", self.double.port().to_string())
            .env("NODE_NAME", "own")
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("the agent starts");
        self.agent = Some(child);
    }

    pub(crate) fn log() -> String {
        fs::read_to_string(LOG).unwrap_or_default()
    }

    /// Waits until the agent is ready.
    pub(crate) async fn until_ready(&mut self) -> Value {
        self.until("readiness", |status| status["ready"] == true)
            .await
    }

    /// Waits until the agent's status is as wanted.
    pub(crate) async fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let mut ticks = interval(Duration::from_millis(50));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let asking = async {
            loop {
                ticks.tick().await;
                last = self.status();
                if wanted(&last) {
                    return last.clone();
                }
            }
        };
        let answer = timeout(patient(PATIENCE), asking).await;
        answer.unwrap_or_else(|_| panic!("{what} in time; last: {last}\n{}", Self::log()))
    }

    fn status(&mut self) -> Value {
        let ended = self
            .agent
            .as_mut()
            .expect("a started agent")
            .try_wait()
            .expect("a child");
        assert!(
            ended.is_none(),
            "the agent ended: {ended:?}\n{}",
            Self::log()
        );
        // A command would keep the API server, which shares this thread, from answering.
        ask_status(Path::new("/run/flannel/agent.sock")).unwrap_or_default()
    }

    /// A command of the agent.
    pub(crate) fn command(words: &[&str]) -> Command {
        let mut command = Command::new(agent_binary().expect("an agent"));
        command.args(words);
        command
    }

    /// Returns what a command of the agent prints.
    pub(crate) fn print(words: &[&str]) -> String {
        let output = Self::command(words).output().expect("the agent's command");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same, parsed as JSON.
    pub(crate) fn ask(words: &[&str]) -> Value {
        let text = Self::print(words);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{words:?}: {text:?}"))
    }

    /// The generation of what mode `fast` has learned.
    pub(crate) fn generation() -> u64 {
        let shown = Self::ask(&["datapath", "show", "-o", "json"]);
        shown["generation"]
            .as_u64()
            .unwrap_or_else(|| panic!("{shown}"))
    }

    /// Ends the agent by SIGTERM, and fails if it takes longer than `limit`.
    pub(crate) async fn terminate(&mut self, limit: Duration) {
        let agent = self.agent.as_mut().expect("a started agent");
        let pid = Pid::from_raw(i32::try_from(agent.id()).expect("a process"));
        kill(pid, Signal::SIGTERM).expect("a signal");
        let mut ticks = interval(Duration::from_millis(50));
        let ending = async {
            while agent.try_wait().expect("a child").is_none() {
                ticks.tick().await;
            }
        };
        timeout(patient(limit), ending)
            .await
            .unwrap_or_else(|_| panic!("no end in {limit:?}\n{}", Self::log()));
        self.agent = None;
    }

    /// Ends the agent at once.
    pub(crate) fn stop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().expect("kill");
            agent.wait().expect("wait");
        }
    }

    /// A line of the process's own account, such as `VmRSS`, in KiB.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let pid = self.agent.as_ref().expect("a started agent").id();
        let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect(name);
        let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
        number.parse().unwrap_or_else(|_| panic!("{name}{line}"))
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop();
    }
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let pair = authority.issue("server");
    let certificate = CertificateDer::from_pem_file(pair.certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(pair.key).expect("a key");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    TlsAcceptor::from(Arc::new(config))
}
