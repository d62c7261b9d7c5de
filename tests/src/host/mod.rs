//! One host of the lab: a network namespace and a mount namespace, held open by a process.
//!
//! Invariant: no thread of the caller ever changes its namespace. Closures run on separate threads
//! ([`Host::enter`], [`Host::thread`]), and short commands are started by such a thread. What lives
//! longer enters with `nsenter`, and so does everything on a machine.

mod bound;
mod cgroups;
mod command;
mod holder;
mod machine;
mod thread;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;

use self::machine::Machine;
pub use self::{
    command::{HostCommand, Output},
    thread::joined,
};
use crate::{
    lab::Shared,
    lab::child::{ChildGuard, Process},
};

/// A script that runs a command only if the process given by its first argument is still the
/// parent: `PDEATHSIG` says nothing about a parent that ended before it was set.
const IF_PARENT_LIVES: &str = r#"[ "$PPID" = "$0" ] || exit; exec "$@""#;
/// A script that sends echo requests one by one: their number, the destination, and options of
/// `ping`. Each has another `ping`: one that has received an answer waits only two round trips for
/// the last one.
const PINGS: &str = r#"n=$0; to=$1; shift; \
    for _ in $(seq "$n"); do ping -n -c 1 -W 2 "$@" "$to" || exit; done"#;

/// A handle to one host; clones are the same host. A [`Node`](crate::Node) and a
/// [`Pod`](crate::Pod) are hosts.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    kind: Kind,
    lab: Arc<Shared>,
}

/// The thing that has a host's namespaces.
#[derive(Debug)]
enum Kind {
    /// A process that holds them open.
    Namespaces(Arc<Process>),
    Machine(Machine),
    /// A container runtime on a machine, which gave the network namespace this name.
    Container {
        machine: Host,
        network: String,
    },
}

impl Host {
    pub(crate) fn new(lab: &Arc<Shared>, name: &str) -> Result<Self> {
        let holder = holder::start(lab, name).with_context(|| format!("namespaces of {name}"))?;
        Ok(Self::of_kind(lab, name, Kind::Namespaces(holder)))
    }

    pub(crate) fn new_machine(lab: &Arc<Shared>, name: &str) -> Result<Self> {
        let machine = Machine::start(lab, name).with_context(|| format!("namespaces of {name}"))?;
        Ok(Self::of_kind(lab, name, Kind::Machine(machine)))
    }

    /// The network namespace of containers of this machine, below `/run/netns`, with the machine's
    /// files.
    pub(crate) fn container(&self, name: &str, network: &str) -> Self {
        let kind = Kind::Container {
            machine: self.clone(),
            network: network.to_owned(),
        };
        Self::of_kind(self.lab(), name, kind)
    }

    fn of_kind(lab: &Arc<Shared>, name: &str, kind: Kind) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                kind,
                lab: Arc::clone(lab),
            }),
        }
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A process in the mount namespace and, but for a container, in the network namespace.
    pub fn pid(&self) -> u32 {
        match &self.inner.kind {
            Kind::Namespaces(holder) => holder.pid(),
            Kind::Machine(machine) => machine.pid(),
            Kind::Container { machine, .. } => machine.pid(),
        }
    }

    /// Ends the holder and with it the namespaces, unless other processes still run in them.
    pub fn end(&self) -> Result<()> {
        let holder = match &self.inner.kind {
            Kind::Namespaces(holder) => holder,
            Kind::Machine(machine) => machine.holder(),
            Kind::Container { .. } => bail!("{} ends with its container", self.name()),
        };
        holder
            .end()
            .map(drop)
            .with_context(|| format!("end of {}", self.name()))
    }

    pub(crate) fn lab(&self) -> &Arc<Shared> {
        &self.inner.lab
    }

    /// Returns the path at which a file of this host's mount namespace is seen from outside; `path`
    /// is absolute.
    pub fn outside_path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        Path::new("/proc")
            .join(self.pid().to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The command line that enters this host.
    pub fn enter_argv(&self) -> Vec<String> {
        match &self.inner.kind {
            Kind::Namespaces(holder) => {
                ["nsenter", "-t", &holder.pid().to_string(), "-n", "-m", "--"]
                    .map(str::to_owned)
                    .to_vec()
            }
            Kind::Machine(machine) => machine.enter_argv(),
            Kind::Container { machine, network } => {
                let mut line = machine.enter_argv();
                line.extend([
                    "nsenter".to_owned(),
                    format!("--net=/run/netns/{network}"),
                    "--".to_owned(),
                ]);
                line
            }
        }
    }

    /// The files of the namespaces that a thread enters. Not the mount namespace of a machine: the
    /// thread is none of its processes, so `/proc/self` would lead nowhere.
    fn namespaces(&self) -> (PathBuf, Option<PathBuf>) {
        let own = |kind: &str| PathBuf::from(format!("/proc/{}/ns/{kind}", self.pid()));
        match &self.inner.kind {
            Kind::Namespaces(_) => (own("net"), Some(own("mnt"))),
            Kind::Machine(_) => (own("net"), None),
            Kind::Container { network, .. } => {
                (self.outside_path(format!("/run/netns/{network}")), None)
            }
        }
    }

    /// Returns true if a thread that enters this host is in all its namespaces: not in those of a
    /// machine.
    fn threads_enter_all(&self) -> bool {
        matches!(self.inner.kind, Kind::Namespaces(_))
    }

    /// A command inside this host, not yet started.
    pub fn command<A: Into<String>>(&self, argv: impl IntoIterator<Item = A>) -> HostCommand {
        HostCommand::new(self.clone(), argv.into_iter().map(Into::into).collect())
    }

    /// Runs a command and requires exit status 0 within 10 s.
    pub fn run<A: Into<String>>(&self, argv: impl IntoIterator<Item = A>) -> Result<Output> {
        self.command(argv).run()
    }

    /// Runs a command whose arguments hold no blanks, written as one line: `node.sh("ip link set
    /// eth0 up")`. No shell is involved.
    pub fn sh(&self, line: &str) -> Result<Output> {
        self.run(line.split_ascii_whitespace())
    }

    /// Echo requests, one by one, with these options of `ping`. Fails if one is not answered.
    pub fn pings(&self, count: u64, options: &str, to: IpAddr) -> Result<Output> {
        let line = ["sh", "-c", PINGS, &count.to_string(), &to.to_string()].map(str::to_owned);
        self.run(
            line.into_iter()
                .chain(options.split_ascii_whitespace().map(str::to_owned)),
        )
    }

    /// Runs commands of `ip`, a line each and without this word, by one process.
    pub fn ip(&self, lines: &str) -> Result<()> {
        self.command(["ip", "-batch", "-"])
            .input(lines)
            .run()
            .map(drop)
    }

    /// Runs an nft script.
    pub fn nft(&self, script: &str) -> Result<()> {
        self.command(["nft", "-f", "-"])
            .input(script)
            .run()
            .map(drop)
    }

    /// Runs a command and reads its output as JSON; no output at all reads as `[]`.
    pub fn json<T: DeserializeOwned>(&self, argv: &[&str]) -> Result<T> {
        let output = self.run(argv.iter().copied())?;
        let text = if output.stdout.trim().is_empty() {
            "[]"
        } else {
            &output.stdout
        };
        serde_json::from_str(text)
            .with_context(|| format!("{}: {argv:?} printed:\n{text}", self.name()))
    }

    /// Starts a long-running command; its log is `<what>-<host>.log`.
    pub fn spawn<A: Into<String>>(
        &self,
        what: &str,
        argv: impl IntoIterator<Item = A>,
    ) -> Result<ChildGuard> {
        let shared = self.lab();
        let mut line: Vec<String> = if shared.is_lasting() {
            vec!["setsid".to_owned()]
        } else {
            let own_pid = std::process::id().to_string();
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                "--",
                "sh",
                "-c",
                IF_PARENT_LIVES,
                &own_pid,
            ]
            .map(str::to_owned)
            .to_vec()
        };
        line.extend(self.enter_argv());
        line.extend(argv.into_iter().map(Into::into));
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        ChildGuard::start(shared, &format!("{what}-{}", self.name()), command)
    }
}
