//! The pieces of the archive, one file each.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs, io,
    path::Path,
    pin::Pin,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use aya::programs::{ProgramError, ProgramInfo, loaded_programs};
use flannel_bugtool::rules;
use flannel_common::abi::program::{COUNT_POLLS, Program};
use flannel_datapath::{PinRoot, load::probe};
use flannel_firewall_tools::tool;
use flannel_host::{error_chain::chain, sysctl_record};
use flannel_observe::socket::{Request, ask_status, ask_text};
use rustix::process::setpriority_process;
use serde_json::json;
use tokio::{
    runtime::Builder,
    time::{Instant, timeout_at},
};

use super::{options::BugtoolOptions, writer::Writer};

/// The time limit for one piece, and that for all of them.
const PIECE: Duration = Duration::from_secs(40);
const ALL: Duration = Duration::from_mins(1);
/// The time in which the work has the lowest priority.
const QUIET: Duration = Duration::from_secs(15);
/// The niceness of work that waits for all other work.
const LOWEST_PRIORITY: i32 = 19;

/// The output of the agent's commands: the file, and the arguments of the command.
const OWN: [(&str, &[&str]); 6] = [
    ("version.txt", &["run", "--version"]),
    ("status.json", &["status", "-o", "json"]),
    ("check.json", &["check", "-o", "json"]),
    ("maps.json", &["maps", "dump", "all", "-o", "json"]),
    ("flows.json", &["maps", "dump", "flows", "-o", "json"]),
    ("diff.json", &["maps", "dump", "--diff", "-o", "json"]),
];

/// The output of tools about the kernel. The state of IPsec is left out because it shows keys.
const TOOLS: [(&str, &[&str]); 11] = [
    ("kernel/link.json", &["ip", "-j", "-d", "-s", "link"]),
    ("kernel/address.json", &["ip", "-j", "address"]),
    (
        "kernel/route.json",
        &["ip", "-j", "-4", "route", "show", "table", "all"],
    ),
    (
        "kernel/route6.json",
        &["ip", "-j", "-6", "route", "show", "table", "all"],
    ),
    ("kernel/rule.json", &["ip", "-j", "-4", "rule"]),
    ("kernel/rule6.json", &["ip", "-j", "-6", "rule"]),
    ("kernel/neighbour.json", &["ip", "-j", "neigh"]),
    ("kernel/nexthop.json", &["ip", "-j", "nexthop"]),
    ("kernel/fdb.json", &["bridge", "-j", "fdb"]),
    ("kernel/qdisc.json", &["tc", "-j", "-s", "qdisc"]),
    ("kernel/xfrm-policy.txt", &["ip", "xfrm", "policy"]),
];

/// Files as they are.
const FILES: [(&str, &str); 6] = [
    ("kernel/version.txt", "/proc/version"),
    ("kernel/meminfo.txt", "/proc/meminfo"),
    ("kernel/softnet.txt", "/proc/net/softnet_stat"),
    ("kernel/conntrack.txt", "/proc/net/stat/nf_conntrack"),
    ("subnet.env", "/run/flannel/subnet.env"),
    ("net-conf.json", "/etc/kube-flannel/net-conf.json"),
];

/// Directories of switches, and how the names of those that matter begin.
const SWITCHES: [(&str, &[&str]); 4] = [
    (
        "/proc/sys/net/ipv4",
        &["ip_forward", "ip_local_port_range", "fwmark_reflect"],
    ),
    ("/proc/sys/net/netfilter", &["nf_conntrack_"]),
    ("/proc/sys/net/bridge", &["bridge-nf-"]),
    (
        "/proc/sys/kernel",
        &["unprivileged_bpf_disabled", "bpf_stats_enabled"],
    ),
];

const LOGS: &str = "log.txt has the last lines of the running agent. Earlier ones, and those of an \
    agent that ended, are wherever the\n\
    service manager or the runtime keeps them. Please add them:\n\
    journalctl -u flanneld --since -1h          (or the name of your unit)\n\
    kubectl -n kube-flannel logs <pod> -c kube-flannel --since=1h\n";

/// The source of a file.
#[derive(Clone, Debug)]
enum Source {
    /// A subcommand of the agent.
    Own(&'static [&'static str]),
    /// The agent's socket.
    Ask(Request),
    /// A tool.
    Tool(&'static [&'static str]),
    /// A tool that lists rules.
    Rules(&'static str, &'static [&'static str]),
    /// A file as it is.
    File(&'static str),
    /// A file about the agent's process.
    Agent(&'static str),
    Counters,
    Switches,
    ChangedSysctls,
    Programs,
    Verifier,
    Pins,
    Note,
}

/// Runs the command of a command line; the text that it prints.
pub(super) type OwnCommand =
    fn(Vec<OsString>) -> Pin<Box<dyn Future<Output = anyhow::Result<String>>>>;

/// A file of the archive, and its source.
type Job = (&'static str, Source);

fn jobs() -> Vec<Job> {
    let own = OWN
        .into_iter()
        .map(|(name, args)| (name, Source::Own(args)));
    let asked = [
        ("log.txt", Source::Ask(Request::Log)),
        ("metrics.txt", Source::Ask(Request::Metrics)),
    ];
    let tools = TOOLS
        .into_iter()
        .map(|(name, words)| (name, Source::Tool(words)));
    let rules = rules::tools()
        .into_iter()
        .map(|(name, tool, args)| (name, Source::Rules(tool, args)));
    let files = FILES
        .into_iter()
        .map(|(name, path)| (name, Source::File(path)));
    let rest = [
        ("kernel/netstat.txt", Source::Counters),
        ("kernel/sysctl.txt", Source::Switches),
        ("sysctls.txt", Source::ChangedSysctls),
        ("programs.json", Source::Programs),
        ("verifier.txt", Source::Verifier),
        ("pins.txt", Source::Pins),
        ("agent/cmdline.txt", Source::Agent("cmdline")),
        ("agent/status.txt", Source::Agent("status")),
        ("agent/limits.txt", Source::Agent("limits")),
        ("logs.txt", Source::Note),
    ];
    own.chain(asked)
        .chain(tools)
        .chain(rules)
        .chain(files)
        .chain(rest)
        .collect()
}

/// Collects, and passes each piece on as it comes: its text, or why there is none.
pub(super) async fn collect(
    options: &BugtoolOptions,
    own: OwnCommand,
    writer: &mut Writer,
) -> io::Result<()> {
    let jobs: Arc<[Job]> = jobs().into();
    let done = collect_quietly(options, own, &jobs, writer)?;
    let end = Instant::now() + ALL;
    for (name, source) in &jobs[done..] {
        writer.add(
            name,
            in_time(end, piece(source.clone(), options, own)).await,
        )?;
    }
    Ok(())
}

/// Collects at the lowest priority while [`QUIET`] lasts: packets and all other work come first.
/// Returns the number of jobs that are done; on a node without idle CPU the others would not end.
fn collect_quietly(
    options: &BugtoolOptions,
    own: OwnCommand,
    jobs: &Arc<[Job]>,
    writer: &mut Writer,
) -> io::Result<usize> {
    let (send, receive) = mpsc::sync_channel(1);
    let work = {
        let (options, jobs) = (options.clone(), Arc::clone(jobs));
        move || {
            // Linux: of this thread, and of the tools that it starts (setpriority(2), NOTES).
            let _ = setpriority_process(None, LOWEST_PRIORITY);
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
                return;
            };
            for (_, source) in &*jobs {
                let text = runtime.block_on(in_time(
                    Instant::now() + PIECE,
                    piece(source.clone(), &options, own),
                ));
                if send.send(text).is_err() {
                    return;
                }
            }
        }
    };
    // It is not waited for: the end of the process ends it.
    drop(thread::Builder::new().name("quiet".to_owned()).spawn(work));
    let end = std::time::Instant::now() + QUIET;
    for (done, (name, _)) in jobs.iter().enumerate() {
        match receive.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
            Ok(text) => writer.add(name, text)?,
            Err(_) => return Ok(done),
        }
    }
    Ok(jobs.len())
}

async fn piece(
    source: Source,
    options: &BugtoolOptions,
    own: OwnCommand,
) -> anyhow::Result<String> {
    let state_dir = &options.state.state_dir;
    match source {
        Source::Own(args) => own(own_line(args, options)).await,
        Source::Ask(request) => ask_text(state_dir, request)
            .await
            .context("no agent answers"),
        Source::Tool(words) => run(words).await,
        Source::Rules(tool, args) => rules::list(tool, args).await,
        Source::File(path) => fs::read_to_string(path).with_context(|| path.to_owned()),
        Source::Agent(file) => agent(options, file).await,
        Source::Counters => counters(),
        Source::Switches => Ok(switches()),
        Source::ChangedSysctls => changed_sysctls(state_dir),
        Source::Programs => programs(&options.pins.root()),
        Source::Verifier => Ok(verifier()),
        Source::Pins => pins(options.pins.root().root()),
        Source::Note => Ok(LOGS.to_owned()),
    }
}

/// The counters of protocols, as `nstat -az` shows them, which needs a file that it can write.
fn counters() -> anyhow::Result<String> {
    let mut text = String::new();
    for path in ["/proc/net/snmp", "/proc/net/netstat"] {
        let content = fs::read_to_string(path).with_context(|| path.to_owned())?;
        let lines: Vec<&str> = content.lines().collect();
        for pair in lines.chunks_exact(2) {
            let protocol = pair[0].split(':').next().unwrap_or_default();
            let values = pair[0]
                .split_ascii_whitespace()
                .zip(pair[1].split_ascii_whitespace())
                .skip(1);
            for (name, value) in values {
                let _ = writeln!(text, "{protocol}{name} {value}");
            }
        }
    }
    // A kernel without IPv6 has no such file.
    text.push_str(&fs::read_to_string("/proc/net/snmp6").unwrap_or_default());
    Ok(text)
}

async fn in_time(
    end: Instant,
    work: impl Future<Output = anyhow::Result<String>>,
) -> anyhow::Result<String> {
    match timeout_at(end.min(Instant::now() + PIECE), work).await {
        Ok(result) => result,
        Err(_elapsed) => bail!("it took too long"),
    }
}

/// The command line of one of the agent's commands, for the same agent.
fn own_line(args: &[&str], options: &BugtoolOptions) -> Vec<OsString> {
    let pins = format!("--bpf-pin-root={}", options.pins.root().root().display());
    let state = format!("--state-dir={}", options.state.state_dir.display());
    let where_it_is: &[&str] = match args[0] {
        "status" | "maps" | "check" => &[&pins, &state],
        _ => &[],
    };
    ["flannel-agent"]
        .iter()
        .chain(args)
        .chain(where_it_is)
        .map(OsString::from)
        .collect()
}

/// All that the kernel's verifier says of a program it refuses; what else keeps the programs out is
/// in `check.json`.
fn verifier() -> String {
    match probe::programs(None) {
        Ok(_) => "the kernel takes the programs\n".to_owned(),
        Err(error) => format!(
            "{}\n{}\n",
            chain(&error),
            error.verifier_log().unwrap_or_default()
        ),
    }
}

async fn run(words: &[&str]) -> anyhow::Result<String> {
    let [name, args @ ..] = words else {
        bail!("no command")
    };
    let path = tool::find(name).with_context(|| format!("{name} is not installed"))?;
    Ok(tool::run(&path, args, "").await?)
}

fn switches() -> String {
    let mut text = String::new();
    for (dir, beginnings) in SWITCHES {
        for path in entries(Path::new(dir)) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if beginnings
                .iter()
                .any(|beginning| name.starts_with(beginning))
            {
                show(&mut text, &path);
            }
        }
    }
    for family in ["ipv4", "ipv6"] {
        for device in entries(Path::new(&format!("/proc/sys/net/{family}/conf"))) {
            for name in [
                "forwarding",
                "rp_filter",
                "accept_local",
                "accept_ra",
                "disable_ipv6",
            ] {
                show(&mut text, &device.join(name));
            }
        }
    }
    text
}

/// The record of the sysctls the agent changed, as it is.
fn changed_sysctls(state_dir: &Path) -> anyhow::Result<String> {
    let path = sysctl_record::path(state_dir);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("none\n".to_owned()),
        text => text.with_context(|| path.display().to_string()),
    }
}

/// A switch and its value; one that cannot be read is not there for us.
fn show(text: &mut String, path: &Path) {
    if let Ok(value) = fs::read_to_string(path) {
        let name = path.strip_prefix("/proc/sys").unwrap_or(path).display();
        let _ = writeln!(text, "{name} = {}", value.trim());
    }
}

fn entries(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Returns the flannel programs in the kernel, of all agents. Without `CAP_SYS_ADMIN`, as in the
/// agent's container, it returns the pinned programs only.
fn programs(pins: &PinRoot) -> anyhow::Result<String> {
    let names: Vec<&str> = Program::ALL
        .iter()
        .map(|program| program.name())
        .chain([COUNT_POLLS])
        .collect();
    let loaded: Result<Vec<ProgramInfo>, ProgramError> = loaded_programs().collect();
    let mut rows = Vec::new();
    for program in loaded.or_else(|_refused| pinned(pins))? {
        let Some(name) = program.name_as_str().filter(|name| names.contains(name)) else {
            continue;
        };
        rows.push(json!({
            "id": program.id(),
            "name": name,
            "tag": format!("{:016x}", program.tag()),
            "bytes_of_instructions": program.size_translated(),
            "runs": program.run_count(),
            "run_time_ns": u64::try_from(program.run_time().as_nanos()).unwrap_or(u64::MAX),
        }));
    }
    Ok(serde_json::to_string_pretty(&rows)?)
}

fn pinned(pins: &PinRoot) -> Result<Vec<ProgramInfo>, ProgramError> {
    let programs = Program::ALL.iter().map(|program| pins.program(*program));
    programs
        .chain([pins.poll_counter()])
        .filter(|path| path.exists())
        .map(ProgramInfo::from_pin)
        .collect()
}

fn pins(root: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut waiting = vec![root.to_owned()];
    fs::read_dir(root).with_context(|| root.display().to_string())?;
    while let Some(dir) = waiting.pop() {
        for path in entries(&dir) {
            let _ = writeln!(text, "{}", path.display());
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(text)
}

/// A file about the agent's process.
async fn agent(options: &BugtoolOptions, file: &str) -> anyhow::Result<String> {
    let status = ask_status(&options.state.state_dir)
        .await
        .context("no agent answers")?;
    let pid = status
        .pid
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let path = format!("/proc/{pid}/{file}");
    Ok(fs::read_to_string(&path).context(path)?.replace('\0', "\n"))
}
