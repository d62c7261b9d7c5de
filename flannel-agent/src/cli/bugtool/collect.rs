//! The pieces of the archive, each in a file of its own.

use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use aya::programs::{ProgramError, ProgramInfo, loaded_programs};
use flannel_common::program::{COUNT_POLLS, Program};
use flannel_firewall::tools::tool;
use flannel_host::{error_chain::chain, sysctl_record};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::{BugtoolOptions, PIECE_MAX};
use crate::{
    cli::{Command, parse},
    datapath::{PinRoot, probe},
    observe::socket::ask_status,
};

/// The time limit for one piece, and that for all of them.
const PIECE: Duration = Duration::from_secs(20);
const ALL: Duration = Duration::from_mins(1);

/// The output of our own commands: the file, and the arguments of the command.
const OWN: [(&str, &[&str]); 6] = [
    ("version.txt", &["run", "--version"]),
    ("status.json", &["status", "-o", "json"]),
    ("check.json", &["check", "-o", "json"]),
    ("maps.json", &["maps", "dump", "all", "-o", "json"]),
    ("flows.json", &["maps", "dump", "flows", "-o", "json"]),
    ("diff.json", &["maps", "dump", "--diff", "-o", "json"]),
];

/// The output of tools about the kernel. The state of IPsec is left out because it shows keys.
const TOOLS: [(&str, &[&str]); 16] = [
    ("kernel/link.json", &["ip", "-j", "-d", "-s", "link"]),
    ("kernel/address.json", &["ip", "-j", "address"]),
    ("kernel/route.json", &["ip", "-j", "-4", "route", "show", "table", "all"]),
    ("kernel/route6.json", &["ip", "-j", "-6", "route", "show", "table", "all"]),
    ("kernel/rule.json", &["ip", "-j", "-4", "rule"]),
    ("kernel/rule6.json", &["ip", "-j", "-6", "rule"]),
    ("kernel/neighbour.json", &["ip", "-j", "neigh"]),
    ("kernel/nexthop.json", &["ip", "-j", "nexthop"]),
    ("kernel/fdb.json", &["bridge", "-j", "fdb"]),
    ("kernel/qdisc.json", &["tc", "-j", "-s", "qdisc"]),
    ("kernel/xfrm-policy.txt", &["ip", "xfrm", "policy"]),
    ("rules/nft-ipv4.txt", &["nft", "list", "table", "ip", "flannel-ipv4"]),
    ("rules/nft-ipv6.txt", &["nft", "list", "table", "ip6", "flannel-ipv6"]),
    ("rules/iptables.txt", &["iptables-save", "-c"]),
    ("rules/ip6tables.txt", &["ip6tables-save", "-c"]),
    ("kernel/netstat.txt", &["nstat", "-az"]),
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
    ("/proc/sys/net/ipv4", &["ip_forward", "ip_local_port_range", "fwmark_reflect"]),
    ("/proc/sys/net/netfilter", &["nf_conntrack_"]),
    ("/proc/sys/net/bridge", &["bridge-nf-"]),
    ("/proc/sys/kernel", &["unprivileged_bpf_disabled", "bpf_stats_enabled"]),
];

const LOGS: &str = "The log is not in here, because it is wherever the service manager or the runtime keeps it. Please add it:\n\
    journalctl -u flanneld --since -1h          (or the name of your unit)\n\
    kubectl -n kube-flannel logs <pod> --since=1h\n";

/// A file of the archive: its text, or why there is none.
pub(super) type Piece = (String, anyhow::Result<String>);

/// Collects, and passes each piece before the next one is read.
pub(super) async fn pieces(options: &BugtoolOptions, mut take: impl FnMut(Piece) -> io::Result<()>) -> io::Result<()> {
    let end = Instant::now() + ALL;
    for (name, args) in OWN {
        take((name.to_owned(), in_time(end, own(args, options)).await))?;
    }
    for (name, words) in TOOLS {
        take((name.to_owned(), in_time(end, run(words)).await))?;
    }
    for (name, path) in FILES {
        take((name.to_owned(), fs::read_to_string(path).with_context(|| path.to_owned())))?;
    }
    take(("kernel/sysctl.txt".to_owned(), Ok(switches())))?;
    take(("sysctls.txt".to_owned(), changed_sysctls(&options.state.state_dir)))?;
    take(("programs.json".to_owned(), programs(&options.pins.root())))?;
    take(("verifier.txt".to_owned(), Ok(verifier())))?;
    take(("pins.txt".to_owned(), pins(options.pins.root().root())))?;
    for file in ["cmdline", "status", "limits"] {
        take((format!("agent/{file}.txt"), agent(options, file).await))?;
    }
    take(("logs.txt".to_owned(), Ok(LOGS.to_owned())))
}

async fn in_time(end: Instant, work: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<String> {
    match timeout_at(end.min(Instant::now() + PIECE), work).await {
        Ok(result) => result,
        Err(_elapsed) => bail!("it took too long"),
    }
}

/// Runs one of our own commands for the same agent, and returns the text it prints.
async fn own(args: &[&str], options: &BugtoolOptions) -> anyhow::Result<String> {
    let pins = format!("--bpf-pin-root={}", options.pins.root().root().display());
    let state = format!("--state-dir={}", options.state.state_dir.display());
    let where_it_is: &[&str] = match args[0] {
        "status" | "maps" | "check" => &[&pins, &state],
        _ => &[],
    };
    let line = ["flannel-agent"].iter().chain(args).chain(where_it_is).map(|word| (*word).to_owned());
    match parse(line.map(Into::into), []) {
        Ok(Command::Once(command)) => Ok(Box::pin(command.run()).await?.text),
        Ok(Command::Run(_)) => bail!("no command that ends"),
        Err(stop) if stop.code == 0 => Ok(stop.text),
        Err(stop) => bail!("{}", stop.text),
    }
}

/// All that the kernel's verifier says of a program it refuses; what else keeps the programs out is
/// in `check.json`.
fn verifier() -> String {
    match probe::programs() {
        Ok(_) => "the kernel takes the programs\n".to_owned(),
        Err(error) => format!("{}\n{}\n", chain(&error), error.verifier_log().unwrap_or_default()),
    }
}

async fn run(words: &[&str]) -> anyhow::Result<String> {
    let [name, args @ ..] = words else { bail!("no command") };
    let path = tool::find(name).with_context(|| format!("{name} is not installed"))?;
    let is_rules = name.ends_with("tables-save");
    let (mut text, mut own) = (BoundedText::default(), OwnRules::default());
    tool::each_line(&path, args, |line| if is_rules { own.add(line) } else { text.add(line) }).await?;
    Ok(if is_rules { own.finish() } else { text.0 })
}

/// Text that ends a line after [`PIECE_MAX`] bytes; the archive says that it is cut off.
#[derive(Default)]
struct BoundedText(String);

impl BoundedText {
    fn add(&mut self, line: &str) {
        if self.0.len() <= PIECE_MAX {
            self.0.push_str(line);
            self.0.push('\n');
        }
    }
}

/// Our rules among those of iptables, all chains, and the number of rules in each chain. Rules of
/// others are only counted: a host may have a hundred thousand, and they may name secrets.
#[derive(Default)]
struct OwnRules {
    text: BoundedText,
    table: String,
    /// By table and chain.
    counts: BTreeMap<(String, String), usize>,
}

impl OwnRules {
    fn add(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix('*') {
            name.clone_into(&mut self.table);
        }
        let rule = line.split_once("-A ").and_then(|(_, rule)| rule.split_ascii_whitespace().next());
        if let Some(chain) = rule {
            *self.counts.entry((self.table.clone(), chain.to_owned())).or_default() += 1;
        }
        if rule.is_none() || line.to_ascii_lowercase().contains("flannel") {
            self.text.add(line);
        }
    }

    fn finish(mut self) -> String {
        for ((table, chain), count) in self.counts {
            self.text.add(&format!("# {count} rules in {table} {chain}"));
        }
        self.text.0
    }
}

fn switches() -> String {
    let mut text = String::new();
    for (dir, beginnings) in SWITCHES {
        for path in entries(Path::new(dir)) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if beginnings.iter().any(|beginning| name.starts_with(beginning)) {
                show(&mut text, &path);
            }
        }
    }
    for family in ["ipv4", "ipv6"] {
        for device in entries(Path::new(&format!("/proc/sys/net/{family}/conf"))) {
            for name in ["forwarding", "rp_filter", "accept_local", "accept_ra", "disable_ipv6"] {
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
    let mut found: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Every program of ours in the kernel, of whatever agent; without `CAP_SYS_ADMIN`, as in the
/// agent's container, those that are pinned.
fn programs(pins: &PinRoot) -> anyhow::Result<String> {
    let names: Vec<&str> = Program::ALL.iter().map(|program| program.name()).chain([COUNT_POLLS]).collect();
    let loaded: Result<Vec<ProgramInfo>, ProgramError> = loaded_programs().collect();
    let mut rows = Vec::new();
    for program in loaded.or_else(|_refused| pinned(pins))? {
        let Some(name) = program.name_as_str().filter(|name| names.contains(name)) else { continue };
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
    programs.chain([pins.poll_counter()]).filter(|path| path.exists()).map(ProgramInfo::from_pin).collect()
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
    let status = ask_status(&options.state.state_dir).await.context("no agent answers")?;
    let pid = status.pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let path = format!("/proc/{pid}/{file}");
    Ok(fs::read_to_string(&path).context(path)?.replace('\0', "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_others_are_counted_and_the_text_is_bounded() {
        let mut own = OwnRules::default();
        let lines = [
            "*nat",
            ":KUBE-SVC-A - [0:0]",
            "[0:0] -A KUBE-SVC-A -j KUBE-SEP-B",
            "[0:0] -A POSTROUTING -j FLANNEL-POSTRTG",
        ];
        lines.iter().for_each(|line| own.add(line));
        let text = own.finish();
        assert!(!text.contains("KUBE-SEP-B") && text.contains("FLANNEL-POSTRTG"), "{text}");
        assert!(text.contains("# 1 rules in nat KUBE-SVC-A\n"), "{text}");
        let (mut text, line) = (BoundedText::default(), "x".repeat(1 << 10));
        (0..PIECE_MAX >> 9).for_each(|_| text.add(&line));
        assert!(text.0.len() <= PIECE_MAX + line.len() + 1, "{}", text.0.len());
    }
}
