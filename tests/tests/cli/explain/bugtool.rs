//! `bugtool`: everything is in it, and no secret is.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Lab, Node, TwoNodes, agent_binary, cluster::VXLAN, not_run};

/// Unpacks the archive of a node below a new directory. Returns the paths and contents of its
/// files.
fn unpacked(agent: &Agent) -> Result<Vec<(String, String)>> {
    let dir = tempfile::tempdir()?;
    let (archive, at) = (dir.path().join("bug.tar.gz"), dir.path().join("unpacked"));
    fs::create_dir(&at)?;
    let file = archive.to_str().context("a path")?;
    let said = agent.cli_any(&["bugtool", "-o", file])?;
    ensure!(
        said.code == 0 && said.stdout.starts_with(&format!("wrote {file} with ")),
        "{said:?}"
    );
    agent
        .node()
        .run(["tar", "-xzf", file, "-C", at.to_str().context("a path")?])?;
    let list = agent
        .node()
        .run(["find", at.to_str().context("a path")?, "-type", "f"])?
        .stdout;
    let text = |path: &str| {
        Ok((
            path.to_owned(),
            String::from_utf8_lossy(&fs::read(path)?).into_owned(),
        ))
    };
    list.lines().map(text).collect()
}

fn find<'a>(files: &'a [(String, String)], name: &str) -> Result<&'a str> {
    let file = files
        .iter()
        .find(|(path, _)| path.ends_with(&format!("/{name}")));
    let errors = files
        .iter()
        .find(|(path, _)| path.ends_with("/errors.txt"))
        .map(|(_, text)| text.as_str());
    Ok(&file
        .with_context(|| format!("no {name}; errors:\n{}", errors.unwrap_or_default()))?
        .1)
}

/// Files of the archive that are documents of JSON.
const DOCUMENTS: [&str; 7] = [
    "status.json",
    "check.json",
    "maps.json",
    "flows.json",
    "diff.json",
    "kernel/link.json",
    "programs.json",
];
/// Files of the archive, and a text in each.
const TEXTS: [(&str, &str); 15] = [
    ("status.json", "\"ready\": true"),
    ("kernel/link.json", "flannel.1"),
    ("programs.json", "\"to_tunnel\""),
    ("pins.txt", "maps/PEERS"),
    ("kernel/sysctl.txt", "net/ipv4/ip_forward = 1"),
    (
        "sysctls.txt",
        "sysctl net.netfilter.nf_conntrack_tcp_timeout_max_retrans 300 432000\n",
    ),
    ("rules/iptables.txt", "FLANNEL-POSTRTG"),
    ("agent/cmdline.txt", "--iface=eth0"),
    ("subnet.env", "FLANNEL_SUBNET="),
    ("logs.txt", "journalctl"),
    ("log.txt", "lease acquired"),
    ("metrics.txt", "flannel_peers"),
    ("kernel/netstat.txt", "TcpExtTCPTimeouts "),
    (
        "rules/nft.txt",
        "tcp dport 4321 counter packets 0 bytes 0 drop comment \"...\"",
    ),
    (
        "rules/iptables.txt",
        "-A INPUT -p tcp -m tcp --dport 4322 -m comment --comment \"...\" -j ACCEPT",
    ),
];

/// Rules of others, of both engines.
fn add_rules_of_others(node: &Node) -> Result<()> {
    node.run([
        "iptables",
        "-A",
        "INPUT",
        "-p",
        "tcp",
        "--dport",
        "4322",
        "-m",
        "comment",
        "--comment",
        "a b",
        "-j",
        "ACCEPT",
    ])?;
    for rule in [
        "add table inet other",
        "add chain inet other x",
        "add rule inet other x tcp dport 4321 counter drop comment \"a b\"",
    ] {
        node.run(["nft", rule])?;
    }
    Ok(())
}

#[test]
fn an_archive_holds_everything_but_secrets() -> Result<()> {
    let pair = TwoNodes::new("bugtool", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?.flag("--ip-masq=true"))?;
    add_rules_of_others(&pair.a)?;
    let files = unpacked(&agent)?;
    for name in DOCUMENTS {
        let text = find(&files, name)?;
        serde_json::from_str::<serde_json::Value>(text)
            .with_context(|| format!("{name}: {text}"))?;
    }
    for (name, text) in TEXTS {
        ensure!(
            find(&files, name)?.contains(text),
            "{text} in {name}:\n{}",
            find(&files, name)?
        );
    }

    // Without an agent most of it is still there, and the rest is accounted for.
    agent.kill9()?;
    let files = unpacked(&agent)?;
    ensure!(find(&files, "maps.json")?.contains("\"mode\""));
    for missing in [
        "agent/cmdline.txt: no agent answers",
        "log.txt: no agent answers",
    ] {
        ensure!(
            find(&files, "errors.txt")?.contains(missing),
            "{}",
            find(&files, "errors.txt")?
        );
    }
    Ok(())
}

/// In a directory where another user placed a link by the name that the archive will have.
#[test]
fn an_archive_follows_no_link_and_replaces_no_file() -> Result<()> {
    let lab = Lab::new("bugtool-link")?;
    let node = lab.node("n")?;
    let dir = tempfile::tempdir()?;
    let at = dir.path().to_str().context("a path")?;
    let agent = agent_binary()?.display().to_string();
    fs::write(dir.path().join("target"), "precious")?;
    // The names of the next minute.
    let script = format!(
        "mkdir {at}/shared; cd {at}/shared; now=$(date +%s); \
         for i in $(seq 0 60); do ln -s ../target flannel-bugtool-$(uname -n)-$((now + i)).tar.gz; \
         done; \
         {agent} bugtool --state-dir={at}/none --bpf-pin-root={at}/none"
    );
    let said = node.run(["sh", "-c", &script])?.stdout;
    ensure!(said.contains("-1.tar.gz with "), "{said}");
    ensure!(fs::read_to_string(dir.path().join("target"))? == "precious");
    let made = fs::read_dir(dir.path().join("shared"))?.filter_map(Result::ok);
    let made: Vec<_> = made
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .collect();
    ensure!(
        made.len() == 1 && made[0].metadata()?.permissions().mode() & 0o7777 == 0o600,
        "{made:?}"
    );
    let target = format!("{at}/target");
    let refused = node
        .command([agent.as_str(), "bugtool", "-o", &target])
        .expect_code(2)
        .run()?;
    ensure!(
        refused
            .stderr
            .contains("choose another place with -o: File exists"),
        "{refused:?}"
    );
    ensure!(fs::read_to_string(target)? == "precious");
    Ok(())
}

/// Packets come first: the tools that it runs in its first seconds have the lowest priority.
#[test]
fn it_runs_at_the_lowest_priority() -> Result<()> {
    let lab = Lab::new("bugtool-nice")?;
    let node = lab.node("n")?;
    let dir = tempfile::tempdir()?;
    let at = dir.path().to_str().context("a path")?;
    let agent = agent_binary()?.display().to_string();
    // A tool that says how it runs.
    let nice = format!("#!/bin/sh\nsed 's/.*) //' /proc/$$/stat | cut -d' ' -f17 >>{at}/nice\n");
    fs::write(dir.path().join("bridge"), nice)?;
    let script = format!(
        "chmod 755 {at}/bridge; PATH={at}:$PATH {agent} bugtool -o {at}/bug.tar.gz \
         --state-dir={at}/none --bpf-pin-root={at}/none"
    );
    node.run(["sh", "-c", &script])?;
    let nice = fs::read_to_string(dir.path().join("nice"))?;
    if nice.trim() == "0" {
        not_run(
            "the priority of bugtool's tools",
            "in 15 s it did not come to them, so busy is the machine",
        );
        return Ok(());
    }
    ensure!(nice.starts_with("19\n"), "{nice}");
    Ok(())
}

/// The container's root cannot be written; `kubectl exec` brings standard output anywhere.
#[test]
fn an_archive_goes_to_standard_output() -> Result<()> {
    let pair = TwoNodes::new("bugtool-out", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let dir = tempfile::tempdir()?;
    let at = dir.path().to_str().context("a path")?;
    let command = agent.argv(&["bugtool", "-o", "-"]).join(" ");
    let listed = agent
        .node()
        .run(["sh", "-c", &format!("cd {at} && {command} | tar -tzf -")])?;
    ensure!(
        listed
            .stdout
            .lines()
            .any(|line| line.ends_with("/status.json")),
        "{listed:?}"
    );
    ensure!(listed.stderr.is_empty(), "{listed:?}");
    ensure!(
        fs::read_dir(dir.path())?.next().is_none(),
        "no file is made"
    );
    Ok(())
}

#[test]
fn planted_secrets_are_not_in_it() -> Result<()> {
    const SECRET: &str = "hunter2hunter2";
    const KEY: &str = "0x0123456789abcdef0123456789abcdef01234567";
    let pair = TwoNodes::new("secrets", VXLAN)?;
    let mut options = pair
        .options()?
        .flag("--etcd-username=root")
        .flag(&format!("--etcd-password={SECRET}"));
    options
        .environment
        .push(("FLANNELD_KUBE_TOKEN".to_owned(), SECRET.to_owned()));
    // The agent cannot log in, which does not matter here: it runs, and its command line can be
    // read.
    let agent = pair.a.agent(options)?;
    agent.wait_status("an answer", |status| {
        ensure!(status["pid"].is_u64(), "{status}");
        Ok(())
    })?;
    // The comment of another's rule is left out, and that of a rule that names flannel is taken
    // along without its secrets.
    pair.a.sh(&format!(
        "iptables -A FORWARD -m comment --comment {SECRET} -j ACCEPT"
    ))?;
    for text in [
        format!("flannel password={SECRET}"),
        format!("flannel api_key: \"{SECRET}\""),
        format!("flannel at http://root:{SECRET}@192.168.1.12:2379"),
    ] {
        pair.a.run([
            "iptables",
            "-A",
            "FORWARD",
            "-m",
            "comment",
            "--comment",
            &text,
            "-j",
            "ACCEPT",
        ])?;
    }
    let ends = "src 192.168.1.11 dst 192.168.1.12 proto ah spi 0x77 mode tunnel";
    let planted = pair.a.command([
        "sh",
        "-c",
        &format!("ip xfrm state add {ends} auth 'hmac(sha1)' {KEY}"),
    ]);
    let planted = planted.any_code().run()?;
    if planted.code != 0 {
        not_run("an IPsec key beside the archive", planted.stderr.trim());
    }
    let files = unpacked(&agent)?;
    ensure!(
        find(&files, "agent/cmdline.txt")?.contains("--etcd-password=REDACTED"),
        "{}",
        find(&files, "agent/cmdline.txt")?
    );
    let rules = find(&files, "rules/iptables.txt")?;
    ensure!(rules.matches("REDACTED").count() == 3, "{rules}");
    for (path, text) in &files {
        ensure!(
            !text.contains(SECRET) && !text.contains(&KEY[2..]),
            "a secret in {path}"
        );
    }
    Ok(())
}
