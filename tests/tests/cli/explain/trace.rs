//! `explain --trace`: it names the rule that drops real packets, and leaves no rule behind.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, ChildGuard, Node, Pair, cluster::topology::Stack, eventually, harness::not_run::not_run,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A trace ends long before this.
const LONG: &str = "--trace=60";
const LIMIT: Duration = Duration::from_secs(30);
const VXLAN: &str = r#"{"Type":"vxlan"}"#;

/// A command that traces.
struct RunningTrace<'a> {
    node: &'a Node,
    child: ChildGuard,
}

/// The document of a trace, and the exit status.
struct Story {
    code: i32,
    document: Value,
}

fn tables(node: &Node) -> Result<String> {
    Ok(node.sh("nft list tables")?.stdout)
}

/// The number of traces that run.
fn traces(node: &Node) -> Result<usize> {
    Ok(tables(node)?.matches("table inet flannel-trace-").count())
}

fn is_clean(node: &Node) -> Result<()> {
    let tables = tables(node)?;
    ensure!(!tables.contains("flannel-trace"), "{tables}");
    Ok(())
}

impl<'a> RunningTrace<'a> {
    /// Starts the command, and waits until packets are traced.
    fn begin(agent: &'a Agent, [source, destination]: [IpAddr; 2], words: &[&str]) -> Result<Self> {
        let before = traces(agent.node())?;
        let trace = Self::spawn(agent, [source, destination], words)?;
        let is_tracing = || {
            ensure!(traces(trace.node)? > before, "no table");
            Ok(())
        };
        eventually("the table of the trace", LIMIT, is_tracing)
            .with_context(|| trace.child.log_tail(10))?;
        Ok(trace)
    }

    /// Lets the command end by itself. Its table may be gone before a slow machine has looked.
    fn whole(agent: &'a Agent, ends: [IpAddr; 2], words: &[&str]) -> Result<Story> {
        Self::spawn(agent, ends, words)?.ended()
    }

    fn spawn(agent: &'a Agent, ends: [IpAddr; 2], words: &[&str]) -> Result<Self> {
        let [source, destination] = ends.map(|end| end.to_string());
        let line = [&["explain", &source, &destination, "-o", "json"], words].concat();
        Ok(Self {
            node: agent.node(),
            child: agent.node().spawn("trace", agent.argv(&line))?,
        })
    }

    /// Ends the trace as a user does.
    fn end(self) -> Result<Story> {
        self.child.signal(Signal::SIGINT)?;
        self.ended()
    }

    fn ended(self) -> Result<Story> {
        let code = self.child.wait(LIMIT)?.code().context("no exit status")?;
        is_clean(self.node)?;
        let log = self.child.log();
        let text = log.find("{\n").map_or("", |at| &log[at..]);
        Ok(Story {
            code,
            document: serde_json::from_str(text).with_context(|| log.clone())?,
        })
    }
}

impl Story {
    fn verdict(&self) -> &str {
        self.document["verdict"]["text"]
            .as_str()
            .unwrap_or_default()
    }

    fn number(&self, name: &str) -> u64 {
        self.document["trace"][name].as_u64().unwrap_or(u64::MAX)
    }

    /// Packets were lost by a rule of this chain, with this text in it, and the verdict says so.
    fn expect_drop(&self, beginning: &str, place: &str, text: &str) -> Result<()> {
        let said = self.verdict();
        ensure!(
            self.code == 1 && self.document["verdict"]["reaches"] == false,
            "{:#}",
            self.document
        );
        ensure!(
            said.starts_with(beginning) && said.contains(place) && said.contains(text),
            "{said}"
        );
        ensure!(
            self.number("dropped") >= 1
                && self.document["trace"]["drops"][0]["packets"] == self.number("dropped")
        );
        Ok(())
    }
}

/// Returns true on a kernel without tables that a process owns: the command says so, and leaves
/// nothing.
fn is_too_old(pair: &Pair) -> Result<bool> {
    let [near, far] = [&pair.near, &pair.far].map(|pod| pod.ip().to_string());
    let output = pair
        .sender
        .cli_any(&["explain", &near, &far, "--trace=1"])?;
    let is_refused = output.stderr.contains("(Linux 5.12)");
    if is_refused {
        ensure!(output.code == 2, "{output:?}");
        is_clean(pair.sender.node())?;
        not_run(
            "traces of packets",
            "this kernel has no tables with an owner",
        );
    }
    Ok(is_refused)
}

/// A trace of two pings, which arrive or do not.
fn pings(pair: &Pair, arrive: bool) -> Result<Story> {
    let (near, far) = (pair.near.ip(), pair.far.ip());
    let trace = RunningTrace::begin(&pair.sender, [near, far], &["--proto=icmp", LONG])?;
    let pings = pair.near.command([
        "ping",
        "-n",
        "-c",
        "2",
        "-i",
        "0.2",
        "-W",
        "1",
        &far.to_string(),
    ]);
    let code = pings.any_code().run()?.code;
    ensure!((code == 0) == arrive, "pings ended with {code}");
    trace.end()
}

#[test]
fn a_trace_names_the_rule_that_drops() -> Result<()> {
    for (name, stack, ip) in [
        ("ex-trace", Stack::V4, "ip"),
        ("ex-trace6", Stack::V6, "ip6"),
    ] {
        let pair = Pair::of_backend(name, stack, VXLAN, &[])?;
        if is_too_old(&pair)? {
            return Ok(());
        }
        passing_packets(&pair).context("passing packets")?;
        policies(&pair, ip).context("rules of nft")?;
    }
    Ok(())
}

fn passing_packets(pair: &Pair) -> Result<()> {
    let story = pings(pair, true)?;
    ensure!(
        story.code == 0
            && story
                .verdict()
                .starts_with("passed: no rule dropped a packet"),
        "{:#}",
        story.document
    );
    let numbers =
        ["seen", "seen_replies", "traced", "passed", "dropped"].map(|name| story.number(name));
    ensure!(
        numbers == [2, 2, 4, 4, 0],
        "{numbers:?}: {:#}",
        story.document
    );
    let place = |path: &Value| {
        format!(
            "{} {}",
            path["rules"][0]["chain"], path["rules"][0]["verdict"]
        )
    };
    let paths = story.document["trace"]["paths"]
        .as_array()
        .context("paths")?;
    ensure!(
        paths
            .iter()
            .all(|path| place(path) == r#""FORWARD" "jump FLANNEL-FWD""#),
        "{paths:#?}"
    );

    let story = RunningTrace::whole(
        &pair.sender,
        [pair.near.ip(), pair.far.ip()],
        &["--dport=9", "--trace=1"],
    )?;
    ensure!(
        story.code == 2
            && story
                .verdict()
                .starts_with("no packet of this flow was seen in 1."),
        "{:#}",
        story.document
    );
    Ok(())
}

/// A drop of a network policy, the same of replies, and the policy of a chain.
fn policies(pair: &Pair, ip: &str) -> Result<()> {
    let (node, near, far) = (pair.sender.node(), pair.near.ip(), pair.far.ip());
    let rules = |rule: &str, policy: &str| {
        node.nft(&format!(
            "table inet netpol\ndelete table inet netpol\ntable inet netpol {{\n chain forward \
             {{\n type filter hook \
             forward priority 0; policy {policy};\n jump pods\n }}\n chain pods {{\n {rule}\n \
             }}\n}}\n"
        ))
    };
    rules(
        &format!("{ip} saddr {near} {ip} daddr {far} counter drop comment \"policy web\""),
        "accept",
    )?;
    let story = pings(pair, false)?;
    story.expect_drop(
        "dropped by: ",
        "table inet netpol, chain pods, handle ",
        &format!("{ip} daddr {far}"),
    )?;
    ensure!(
        story
            .verdict()
            .contains("comment \"policy web\" (2 of 2 packets)"),
        "{}",
        story.verdict()
    );
    let path = &story.document["trace"]["paths"][0];
    ensure!(
        path["outcome"] == "dropped" && path["packets"] == 2,
        "{path:#}"
    );
    let verdicts: Vec<_> = path["rules"]
        .as_array()
        .context("rules")?
        .iter()
        .map(|rule| &rule["verdict"])
        .collect();
    ensure!(
        verdicts.iter().any(|verdict| **verdict == "jump pods"),
        "{path:#}"
    );

    rules(
        &format!("{ip} saddr {far} {ip} daddr {near} reject"),
        "accept",
    )?;
    let story = pings(pair, false)?;
    story.expect_drop(
        "dropped on the way back by: ",
        "table inet netpol, chain pods, handle ",
        "reject",
    )?;

    rules("accept", "accept")?;
    ensure!(pings(pair, true)?.code == 0);
    rules("counter", "drop")?;
    pings(pair, false)?.expect_drop(
        "dropped by: ",
        "table inet netpol, chain forward: policy drop",
        "",
    )?;
    node.nft("delete table inet netpol").map(drop)
}

#[test]
fn rules_of_iptables_are_traced_or_named() -> Result<()> {
    let pair = Pair::of_backend("ex-trace-ipt", Stack::V4, VXLAN, &[])?;
    let (node, near, far) = (pair.sender.node(), pair.near.ip(), pair.far.ip());
    let rule = format!("FORWARD -s {near} -d {far} -j DROP");
    if node.sh("iptables -V")?.stdout.contains("nf_tables") {
        node.sh(&format!("iptables -I {rule}"))?;
        pings(&pair, false)?.expect_drop(
            "dropped by: ",
            "table ip filter, chain FORWARD, handle ",
            "drop",
        )?;
        node.sh(&format!("iptables -D {rule}"))?;
    } else {
        not_run(
            "a rule of iptables-nft",
            "iptables is of the legacy variant",
        );
    }
    if node
        .command(["iptables-legacy", "-I"].into_iter().chain(rule.split(' ')))
        .any_code()
        .run()?
        .code
        != 0
    {
        not_run(
            "a rule of the legacy iptables",
            "iptables-legacy does not work here",
        );
        return Ok(());
    }
    let story = pings(&pair, false)?;
    ensure!(
        story.code == 2 && story.document["verdict"]["reaches"].is_null(),
        "{:#}",
        story.document
    );
    let said = story.verdict();
    ensure!(
        said.contains("did not come to the last hook")
            && said.contains("not traced: legacy iptables: "),
        "{said}"
    );
    Ok(())
}

#[test]
fn the_table_of_a_trace_ends_with_it_whatever_ends_it() -> Result<()> {
    let pair = Pair::of_backend("ex-trace-end", Stack::V4, VXLAN, &[])?;
    if is_too_old(&pair)? {
        return Ok(());
    }
    let (agent, ends) = (&pair.sender, [pair.near.ip(), pair.far.ip()]);
    let story = RunningTrace::whole(agent, ends, &["--trace=1"])?;
    ensure!(story.code == 2, "the time is over: {:#}", story.document);

    let trace = RunningTrace::begin(agent, ends, &[LONG])?;
    trace.child.signal(Signal::SIGTERM)?;
    ensure!(trace.ended()?.code == 2);

    let trace = RunningTrace::begin(agent, ends, &[LONG])?;
    let other = RunningTrace::begin(agent, ends, &[LONG])?;
    trace.child.kill9()?;
    ensure!(traces(agent.node())? == 1, "{}", tables(agent.node())?);
    other.child.kill9()?;
    is_clean(agent.node())?;

    let [source, destination] = ends.map(|end| end.to_string());
    let command = agent.argv(&["explain", &source, &destination, "--trace=1"]);
    let without = [
        "setpriv",
        "--bounding-set=-net_admin",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        "--",
    ];
    let refused = agent
        .node()
        .command(without.into_iter().map(str::to_owned).chain(command))
        .any_code()
        .run()?;
    ensure!(
        refused.code == 2 && refused.stderr.contains("needs root, or CAP_NET_ADMIN"),
        "{refused:?}"
    );
    Ok(())
}

/// A flow of mode `fast` is traced by the packets that the kernel sees, and its rules do not count
/// as those of others.
#[test]
fn a_replayed_flow_is_traced_by_what_the_kernel_sees() -> Result<()> {
    let pair = Pair::of_backend(
        "ex-trace-fast",
        Stack::V4,
        VXLAN,
        &["--datapath=fast", "--strict-rules=true"],
    )?;
    let (agent, ends) = (&pair.sender, [pair.near.ip(), pair.far.ip()]);
    let stream = pair.stream(100, Duration::from_mins(2))?;
    eventually("replayed packets", LIMIT, || {
        let replayed = agent.counted("from_pod", "replayed")?;
        ensure!(replayed > 100, "{replayed}");
        Ok(())
    })?;
    let trace = RunningTrace::begin(agent, ends, &["--proto=udp", LONG])?;
    let table = tables(agent.node())?;
    let table = table
        .lines()
        .find(|line| line.contains("flannel-trace-"))
        .context("a table")?;
    eventually("a packet of the flow that the kernel sees", LIMIT, || {
        let rules = agent.node().sh(&format!("nft list {table}"))?.stdout;
        let counted = rules
            .lines()
            .find(|line| line.contains("counter"))
            .unwrap_or_default()
            .to_owned();
        ensure!(!counted.contains("counter packets 0"), "{rules}");
        Ok(())
    })?;
    let story = trace.end()?;
    stream.stop()?;
    ensure!(
        story.code == 0 && story.verdict().starts_with("passed: "),
        "{:#}",
        story.document
    );
    let (seen, replayed) = (story.number("seen"), story.number("replayed"));
    ensure!(
        seen >= 1 && replayed > seen,
        "{seen} seen, {replayed} replayed: {:#}",
        story.document
    );
    let mode = agent.status()?["mode"].clone();
    ensure!(
        mode["effective"] == "fast",
        "the rules of the trace lowered the mode: {mode}"
    );
    Ok(())
}
