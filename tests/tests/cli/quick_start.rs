//! The commands of the quick start, as they stand on its page, on two nodes with the page's
//! addresses.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{ChildGuard, Lab, Node, agent_binary, eventually};

const PAGE: &str = "docs/install/quick-start.md";
const SECTION: &str = "\n## Two nodes with etcd\n";
/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_mins(1);

/// The commands in the blocks of the section, without comments.
fn blocks() -> Result<Vec<Vec<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (_, section) = page.split_once(SECTION).context("the section")?;
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let mut blocks = vec![Vec::new()];
    for line in section.lines() {
        if let Some(line) = line.strip_prefix("    ") {
            let command = line
                .split_once("  #")
                .map_or(line, |(command, _)| command)
                .trim_end();
            blocks
                .last_mut()
                .context("a block")?
                .push(command.to_owned());
        } else if !line.is_empty() && blocks.last().is_some_and(|block| !block.is_empty()) {
            blocks.push(Vec::new());
        }
    }
    Ok(blocks)
}

/// The block with a command that begins with this.
fn block<'a>(blocks: &'a [Vec<String>], start: &str) -> Result<&'a [String]> {
    let has = |block: &&Vec<String>| block.iter().any(|command| command.starts_with(start));
    Ok(blocks
        .iter()
        .find(has)
        .with_context(|| format!("no block of {PAGE} has {start:?}"))?)
}

/// A node on which the programs are installed. Other files are the machine's.
struct Quick<'a> {
    host: Node,
    path: &'a str,
    /// The commands that run on.
    running: Vec<ChildGuard>,
}

impl<'a> Quick<'a> {
    fn new(lab: &Lab, name: &str, path: &'a str) -> Result<Self> {
        let host = lab.node(name)?;
        host.sh("mount -t tmpfs tmpfs /var/lib")?;
        Ok(Self {
            host,
            path,
            running: Vec::new(),
        })
    }

    fn shell(&self, script: &str) -> Result<String> {
        let shell = self
            .host
            .command(["sh", "-e", "-c", script])
            .env("PATH", self.path);
        Ok(shell.limit(Duration::from_mins(2)).run()?.stdout)
    }

    /// Runs commands as a shell does; those that end with `&` run on.
    fn run(&mut self, commands: &[String]) -> Result<()> {
        let mut script = String::new();
        for command in commands {
            let Some(long) = command.strip_suffix(" &") else {
                script.push_str(command);
                script.push('\n');
                continue;
            };
            self.shell(&std::mem::take(&mut script))?;
            let line = format!("exec {long}");
            let argv =
                ["env", &format!("PATH={}", self.path), "sh", "-c", &line].map(str::to_owned);
            let what = long.split_whitespace().next().context("a program")?;
            self.running.push(self.host.spawn(what, argv)?);
        }
        self.shell(&script).map(drop)
    }

    /// Leaves the node as after a reboot: only files on disks stay.
    fn reboot(&mut self) -> Result<()> {
        self.running.clear();
        self.shell(
            "ip netns delete pod
             ip link delete flannel.1
             ip link delete cni0
             rm -r /run/flannel /sys/fs/bpf/flannel
             sysctl -w net.ipv4.ip_forward=0",
        )
        .map(drop)
    }

    /// The address of the node's pod: the second of its subnet.
    fn pod(&self) -> Result<String> {
        let address = self.shell("ip -n pod -4 -o address show dev eth0 | awk '{ print $4 }'")?;
        Ok(address
            .trim()
            .split('/')
            .next()
            .context("an address")?
            .to_owned())
    }
}

#[test]
fn the_commands_lead_to_pods_that_reach_each_other_and_away_again() -> Result<()> {
    let blocks = blocks()?;
    let lab = Lab::new("quick-start")?;
    let programs = tempfile::tempdir()?;
    symlink(agent_binary()?, programs.path().join("flannel-agent"))?;
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH")?);
    let (mut a, mut b) = (Quick::new(&lab, "a", &path)?, Quick::new(&lab, "b", &path)?);
    lab.link(&a.host, "eth0", &b.host, "eth0")?;
    for (node, number) in [(&a, 11), (&b, 12)] {
        node.host.ip(&format!(
            "address add 10.0.0.{number}/24 dev eth0\nlink set eth0 up"
        ))?;
    }

    let [agent, pod] = [
        block(&blocks, "sysctl ")?,
        block(&blocks, ". /run/flannel/subnet.env")?,
    ];
    let etcd = block(&blocks, "etcd ")?;
    a.run(&etcd[..1])?;
    eventually("etcd", LIMIT, || {
        a.run(&etcd[1..]).context("the configuration")
    })?;
    for commands in [agent, pod] {
        a.run(commands)?;
        b.run(commands)?;
    }

    let ping = block(&blocks, "ip netns exec pod ping ")?.join("\n");
    let [from, to] = [a.pod()?, b.pod()?];
    ensure!(
        ping.contains("10.244.13.2") && ping.contains("10.244.14.2"),
        "{ping}"
    );
    let ping = ping
        .replace("10.244.13.2", &from)
        .replace("10.244.14.2", &to);
    // The echo of a peer that was not asked yet leaves the verdict of `explain` open.
    let reach = |a: &Quick<'_>| {
        eventually("pods that reach each other", LIMIT, || {
            a.shell(&ping).map(drop)
        })
    };
    reach(&a)?;

    // The page's last step: the same commands again.
    b.reboot()?;
    b.run(agent)?;
    b.run(pod)?;
    ensure!(b.pod()? == to, "{} behind a reboot, {to} before", b.pod()?);
    reach(&a)?;

    let shown = block(&blocks, "$ flannel-agent status")?;
    let mut count = 0;
    for command in shown.iter().filter_map(|line| line.strip_prefix("$ ")) {
        a.shell(command).with_context(|| command.to_owned())?;
        count += 1;
    }
    ensure!(count >= 5, "{shown:?}");

    for node in [&mut a, &mut b] {
        node.running.clear();
        node.run(block(&blocks, "flannel-agent cleanup")?)?;
        let links = node.shell("ip link show")?;
        ensure!(!links.contains("flannel"), "{links}");
    }
    Ok(())
}
