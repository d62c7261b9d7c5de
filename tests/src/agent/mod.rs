//! The agent under test, as an operator runs it, and what it leaves on its node.

mod drift;
pub mod lease;
pub mod log;
pub mod memory_limit;
pub mod monitor;
pub mod pins;
pub mod snapshot;
pub mod subnet_env;
pub mod suspended;
pub mod tunnel_state;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason, stats::Counter};
use flannel_datapath::{PinRoot, maps::StatsMap};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    ChildGuard, Confinement, Node, Output, Pod, eventually,
    lab::record::stat_field,
    load::{UdpLoad, UdpRun},
};

/// To lease a subnet and load all programs, on a machine that is busy with something else.
const START_LIMIT: Duration = Duration::from_mins(1);

/// The time that an agent has for its answer: `status` waits as long.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The path of the agent under test, `FLANNEL_AGENT`.
pub fn agent_binary() -> Result<PathBuf> {
    let binary = env::var_os("FLANNEL_AGENT")
        .context("FLANNEL_AGENT must be the path of the agent's binary")?;
    PathBuf::from(binary)
        .canonicalize()
        .context("FLANNEL_AGENT")
}

/// The reason why a claim on the size of the agent cannot be judged.
pub const NOT_AS_SHIPPED: &str =
    "the agent has the profile of tests; `cargo xtask test --all` has the shipped one";

/// Returns true unless `FLANNEL_AGENT_PROFILE` says that the agent has the profile of tests, whose
/// executable is not optimised for size.
pub fn is_as_shipped() -> bool {
    env::var("FLANNEL_AGENT_PROFILE").is_ok_and(|profile| profile == "release")
}

/// The options with which an agent is started.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The binary.
    pub binary: PathBuf,
    /// Flags after `run`, in addition to the state directory and the pin root.
    pub flags: Vec<String>,
    /// A command that starts it: what stands before the binary, such as `setpriv
    /// --bounding-set=-net_admin`.
    pub wrapper: Vec<String>,
    /// The confinement to granted rights; `None` for all of root's rights.
    pub confinement: Option<Confinement>,
    /// Additional environment.
    pub environment: Vec<(String, String)>,
    /// `/run/flannel` unless a test says otherwise.
    pub state_dir: String,
    /// `/sys/fs/bpf/flannel` unless a test says otherwise.
    pub pin_root: String,
}

impl AgentOptions {
    /// The usual agent: leases in etcd at `endpoint`, underlay on `eth0`. The binary is
    /// `FLANNEL_AGENT`. It sends no echo requests, because tests count packets.
    pub fn etcd(endpoint: &str) -> Result<Self> {
        Self::of_store(vec![format!("--etcd-endpoints={endpoint}")])
    }

    /// The same with its lease in the Node `name` of an API server at `url`, and the network's
    /// configuration in a file.
    pub fn kubernetes(url: &str, name: &str, net_config: &str) -> Result<Self> {
        let mut options = Self::of_store(vec![
            "--kube-subnet-mgr".to_owned(),
            format!("--kube-api-url={url}"),
            format!("--net-config-path={net_config}"),
        ])?;
        options
            .environment
            .push(("NODE_NAME".to_owned(), name.to_owned()));
        Ok(options)
    }

    fn of_store(mut flags: Vec<String>) -> Result<Self> {
        flags.extend(["--iface=eth0", "--peer-echo-interval=0"].map(str::to_owned));
        Ok(Self {
            binary: agent_binary()?,
            flags,
            wrapper: Vec::new(),
            confinement: Some(Confinement::of_the_manifest()?),
            environment: Vec::new(),
            state_dir: "/run/flannel".to_owned(),
            pin_root: pins::ROOT.to_owned(),
        })
    }

    /// Adds a flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn flags(self, flags: &[&str]) -> Self {
        flags.iter().fold(self, |options, flag| options.flag(flag))
    }

    /// Adds flags; an interface among them takes the place of the one before.
    #[must_use]
    pub fn with(mut self, flags: &[&str]) -> Self {
        let is_interface = |flag: &str| flag.starts_with("--iface=");
        if flags.iter().any(|flag| is_interface(flag)) {
            self.flags.retain(|flag| !is_interface(flag));
        }
        self.flags(flags)
    }

    /// Starts it by another command, given as one line.
    #[must_use]
    pub fn wrapped_by(mut self, line: &str) -> Self {
        self.wrapper = line.split_ascii_whitespace().map(str::to_owned).collect();
        self
    }

    /// Confines it in another way, or not at all.
    #[must_use]
    pub fn confined_by(self, confinement: impl Into<Option<Confinement>>) -> Self {
        Self {
            confinement: confinement.into(),
            ..self
        }
    }
}

/// Asks an agent for its status at its socket, `agent.sock` in its state directory.
pub fn ask_status(socket: &Path) -> Result<Value> {
    let mut socket = UnixStream::connect(socket)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.write_all(b"{\"request\":\"status\"}\n")?;
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// A handle to the agent of one node; clones are the same agent.
#[derive(Clone, Debug)]
pub struct Agent {
    node: Node,
    options: Arc<AgentOptions>,
    child: Arc<Mutex<ChildGuard>>,
}

impl Node {
    /// Starts an agent on this node. [`Agent::wait_ready`] waits for it.
    pub fn agent(&self, options: AgentOptions) -> Result<Agent> {
        let child = start(self, &options)?;
        Ok(Agent {
            node: self.clone(),
            options: Arc::new(options),
            child: Arc::new(Mutex::new(child)),
        })
    }

    /// Starts an agent on this node and waits until it is ready.
    pub fn ready_agent(&self, options: AgentOptions) -> Result<Agent> {
        let agent = self.agent(options)?;
        agent.wait_ready()?;
        Ok(agent)
    }
}

impl Agent {
    /// Waits until `subnet.env` exists and `status` says ready; fails at once if the agent ends
    /// before.
    pub fn wait_ready(&self) -> Result<()> {
        let child = self.child();
        eventually("readiness", START_LIMIT, || {
            if !child.is_running() {
                return Ok(Err(anyhow::anyhow!("the agent ended")));
            }
            self.node.subnet_env()?;
            let status = self.status()?;
            ensure!(status["ready"] == true, "status: {status}");
            Ok(Ok(()))
        })
        .and_then(|ended| ended)
        .with_context(|| {
            format!(
                "agent on {}; end of its log:\n{}",
                self.node.name(),
                child.log_tail(20)
            )
        })
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill9(&self) -> Result<()> {
        self.child().kill9()
    }

    /// SIGTERM, and requires exit status 0 within 10 s.
    pub fn sigterm_and_wait(&self) -> Result<()> {
        self.child().signal(Signal::SIGTERM)?;
        self.child().wait_success(Duration::from_secs(10))
    }

    /// Starts it again with the same options, after it has ended.
    pub fn restart(&self) -> Result<()> {
        ensure!(
            !self.child().is_running(),
            "the agent on {} still runs",
            self.node.name()
        );
        let child = start(&self.node, &self.options)?;
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = child;
        Ok(())
    }

    /// Starts another binary with the same flags and paths, after this agent has ended.
    pub fn succeeded_by(&self, binary: &Path) -> Result<Self> {
        ensure!(
            !self.child().is_running(),
            "the agent on {} still runs",
            self.node.name()
        );
        self.node.agent(AgentOptions {
            binary: binary.to_owned(),
            ..(*self.options).clone()
        })
    }

    /// The command line of [`Agent::argv`] with another binary.
    pub fn argv_of(&self, binary: &Path, args: &[&str]) -> Vec<String> {
        // As in the agent's container, but that results may be written anywhere.
        let confinement = self.options.confinement.clone().map(Confinement::writable);
        self.command_line(confinement.as_ref(), binary, args)
    }

    /// The status document: the agent's answer at its socket, without the processes of a command.
    /// Without a running agent it is that of `status -o json`, from what is pinned.
    pub fn status(&self) -> Result<Value> {
        let socket = self
            .node
            .outside_path(&self.options.state_dir)
            .join("agent.sock");
        ask_status(&socket).or_else(|_| self.status_by_command())
    }

    /// Waits for a problem of this kind in the status.
    pub fn problem(&self, code: &str) -> Result<Value> {
        eventually(
            &format!("problem {code} on {}", self.node.name()),
            Duration::from_secs(20),
            || {
                let status = self.status()?;
                let found = status["problems"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|problem| problem["code"] == code);
                found
                    .cloned()
                    .with_context(|| format!("problems: {}", status["problems"]))
            },
        )
    }

    /// `status -o json`, which adds what is read from pinned maps, such as `drops`.
    pub fn status_by_command(&self) -> Result<Value> {
        // Its exit code is the node's readiness.
        let output = self.cli_any(&["status", "-o", "json"])?;
        serde_json::from_str(&output.stdout)
            .with_context(|| format!("{}: status: {output:?}", self.node.name()))
    }

    /// Another command of the binary, with this agent's state directory and pin root.
    pub fn cli(&self, args: &[&str]) -> Result<Output> {
        self.node.run(self.argv(args))
    }

    /// As [`Agent::cli`], whatever status it ends with, and for commands that look at much.
    pub fn cli_any(&self, args: &[&str]) -> Result<Output> {
        self.node
            .command(self.argv(args))
            .any_code()
            .limit(Duration::from_mins(1))
            .run()
    }

    /// The command line of [`Agent::cli`].
    pub fn argv(&self, args: &[&str]) -> Vec<String> {
        self.argv_of(&self.options.binary, args)
    }

    /// The command line of a user who is root on the host, outside the agent's container.
    pub fn argv_on_the_host(&self, args: &[&str]) -> Vec<String> {
        self.command_line(None, &self.options.binary, args)
    }

    fn command_line(
        &self,
        confinement: Option<&Confinement>,
        binary: &Path,
        args: &[&str],
    ) -> Vec<String> {
        let mut argv = vec!["env".to_owned()];
        argv.push(format!("FLANNELD_STATE_DIR={}", self.options.state_dir));
        argv.push(format!("FLANNELD_BPF_PIN_ROOT={}", self.options.pin_root));
        argv.extend(confinement.into_iter().flat_map(Confinement::argv));
        argv.push(binary.display().to_string());
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        argv
    }

    /// As [`Agent::cli`], with the output read as JSON.
    pub fn cli_json(&self, args: &[&str]) -> Result<Value> {
        let output = self.cli(args)?;
        serde_json::from_str(&output.stdout)
            .with_context(|| format!("{}: {args:?} printed:\n{}", self.node.name(), output.stdout))
    }

    /// `datapath set <mode>`, and waits until `status` shows it in effect.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        self.cli(&["datapath", "set", mode])?;
        eventually(
            &format!("mode {mode} on {}", self.node.name()),
            Duration::from_secs(10),
            || {
                let status = self.status()?;
                ensure!(
                    status["mode"]["effective"] == mode,
                    "mode: {}",
                    status["mode"]
                );
                Ok(())
            },
        )
    }

    /// Kills the agent and starts it, ends it and starts it again. Fails if a datagram from a pod
    /// of this node to another pod is lost.
    pub fn expect_no_loss_by_restarts(&self, [near, far]: [&Pod; 2], load: UdpLoad) -> Result<()> {
        let run = UdpRun::start(near, far, far.ip(), load)?;
        self.kill9()?;
        near.ping(far.ip())?;
        self.restart()?;
        self.wait_ready()?;
        self.sigterm_and_wait()?;
        near.ping(far.ip())?;
        self.restart()?;
        self.wait_ready()?;
        let report = run.stop()?;
        println!(
            "{} datagrams, longest gap {:?}",
            report.sent, report.longest_gap
        );
        report.expect_complete()
    }

    /// Bytes of memory: a field of `/proc/<pid>/status`, such as `VmRSS`.
    pub fn memory(&self, field: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child().pid()))?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.with_context(|| format!("no {field}"))?;
        let kibibytes: u64 = value
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .with_context(|| value.to_owned())?;
        Ok(kibibytes << 10)
    }

    /// The CPU time of the process so far, in steps of 10 ms.
    pub fn cpu_time(&self) -> Result<Duration> {
        let pid = self.child().pid();
        Ok(Duration::from_millis(
            10 * (stat_field(pid, 14)? + stat_field(pid, 15)?),
        ))
    }

    /// Packets a program counted under a reason; zero where it counted none.
    pub fn counted(&self, program: &str, reason: &str) -> Result<u64> {
        Ok(self.tally(program, reason)?.packets)
    }

    /// Packets and bytes a program counted under a reason; zero where it counted none.
    pub fn tally(&self, program: &str, reason: &str) -> Result<Tally> {
        // Waits read it many times. An agent of another schema has its map elsewhere.
        let pins = PinRoot::new(&self.node.outside_path(&self.options.pin_root));
        match StatsMap::open(&pins) {
            Ok(stats) => Tally::of(&stats, program, reason),
            Err(_) => Ok(sum(
                &self.cli_json(&["maps", "dump", "stats", "-o", "json"])?,
                program,
                reason,
            )),
        }
    }

    /// Returns the entry of the node's peer map for the subnet of this peer address, from `maps
    /// dump peers`.
    pub fn peer_entry(&self, public_ip: &str) -> Result<Value> {
        let dump = self.cli_json(&["maps", "dump", "peers", "-o", "json"])?;
        let rows = dump["peers"].as_array().context("a dump without peers")?;
        let row = rows.iter().find(|row| row["vtep"] == public_ip);
        row.cloned()
            .with_context(|| format!("no entry for {public_ip} in {dump}"))
    }

    /// Returns the entry of `status` for the peer with this address.
    pub fn peer_status(&self, public_ip: &str) -> Result<Value> {
        let status = self.status()?;
        let rows = status["peers"]
            .as_array()
            .context("a status without peers")?;
        let row = rows.iter().find(|row| row["public_ip"] == public_ip);
        row.cloned()
            .with_context(|| format!("no peer {public_ip} in {status}"))
    }

    /// The node it runs on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The running (or last) process.
    pub fn child(&self) -> ChildGuard {
        self.child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn start(node: &Node, options: &AgentOptions) -> Result<ChildGuard> {
    let mut argv = vec!["env".to_owned()];
    argv.extend(
        options
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    argv.extend(options.wrapper.iter().cloned());
    argv.extend(options.confinement.iter().flat_map(Confinement::argv));
    argv.extend([options.binary.display().to_string(), "run".to_owned()]);
    argv.extend(options.flags.iter().cloned());
    argv.push(format!("--state-dir={}", options.state_dir));
    argv.push(format!("--bpf-pin-root={}", options.pin_root));
    node.spawn("agent", argv)
}

/// The counters of a program for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets as the program saw them: a segmented one counts once.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    /// Returns what was counted since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Tally {
    /// By the names of program and reason.
    fn of(stats: &StatsMap, program: &str, reason: &str) -> Result<Self> {
        let program = Program::ALL
            .into_iter()
            .find(|known| known.name() == program)
            .context(program.to_owned())?;
        let reason = Reason::ALL
            .into_iter()
            .find(|known| known.name() == reason)
            .context(reason.to_owned())?;
        let Counter { packets, bytes } = stats.get(program, reason)?;
        Ok(Self { packets, bytes })
    }
}

/// The sum over all rows of (program, reason), wherever in the document they stand.
fn sum(value: &Value, program: &str, reason: &str) -> Tally {
    let add = |a: Tally, b: Tally| Tally {
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
    };
    match value {
        Value::Array(rows) => rows
            .iter()
            .map(|row| sum(row, program, reason))
            .fold(Tally::default(), add),
        Value::Object(row) if row.contains_key("program") && row.contains_key("reason") => {
            let counted = row["program"] == program && row["reason"] == reason;
            let number = |name: &str| {
                row.get(name)
                    .and_then(Value::as_u64)
                    .filter(|_| counted)
                    .unwrap_or(0)
            };
            Tally {
                packets: number("packets"),
                bytes: number("bytes"),
            }
        }
        Value::Object(members) => members
            .values()
            .map(|member| sum(member, program, reason))
            .fold(Tally::default(), add),
        _ => Tally::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_one_reason_are_summed() {
        let row = |program, reason, packets: u64| {
            serde_json::json!({
                "program": program,
                "reason": reason,
                "packets": packets,
                "bytes": 10,
            })
        };
        let rows = [
            row("to_tunnel", "no_peer", 1),
            row("to_tunnel", "encapsulated", 2),
            row("x", "encapsulated", 4),
        ];
        let expected = Tally {
            packets: 2,
            bytes: 10,
        };
        assert_eq!(
            sum(
                &serde_json::json!({"stats": rows}),
                "to_tunnel",
                "encapsulated"
            ),
            expected
        );
        assert_eq!(
            sum(&serde_json::json!([]), "to_tunnel", "encapsulated"),
            Tally::default()
        );
    }
}
