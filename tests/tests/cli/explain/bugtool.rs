//! `bugtool`: everything is in it, and no secret is.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, TwoNodes, cluster::VXLAN, not_run};

/// The archive of a node, unpacked below a directory of its own: all its files and what is in them.
fn unpacked(agent: &Agent) -> Result<Vec<(String, String)>> {
    let dir = tempfile::tempdir()?;
    let (archive, at) = (dir.path().join("bug.tar.gz"), dir.path().join("unpacked"));
    fs::create_dir(&at)?;
    let file = archive.to_str().context("a path")?;
    let said = agent.cli_any(&["bugtool", "-o", file])?;
    ensure!(said.code == 0 && said.stdout.starts_with(&format!("wrote {file} with ")), "{said:?}");
    agent.node().run(["tar", "-xzf", file, "-C", at.to_str().context("a path")?])?;
    let list = agent.node().run(["find", at.to_str().context("a path")?, "-type", "f"])?.stdout;
    let text = |path: &str| Ok((path.to_owned(), String::from_utf8_lossy(&fs::read(path)?).into_owned()));
    list.lines().map(text).collect()
}

fn find<'a>(files: &'a [(String, String)], name: &str) -> Result<&'a str> {
    let file = files.iter().find(|(path, _)| path.ends_with(&format!("/{name}")));
    let errors = files.iter().find(|(path, _)| path.ends_with("/errors.txt")).map(|(_, text)| text.as_str());
    Ok(&file.with_context(|| format!("no {name}; errors:\n{}", errors.unwrap_or_default()))?.1)
}

#[test]
fn an_archive_holds_everything_but_secrets() -> Result<()> {
    let pair = TwoNodes::new("bugtool", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?.flag("--ip-masq=true"))?;
    let files = unpacked(&agent)?;
    for name in
        ["status.json", "check.json", "maps.json", "flows.json", "diff.json", "kernel/link.json", "programs.json"]
    {
        let text = find(&files, name)?;
        serde_json::from_str::<serde_json::Value>(text).with_context(|| format!("{name}: {text}"))?;
    }
    for (name, text) in [
        ("status.json", "\"ready\": true"),
        ("kernel/link.json", "flannel.1"),
        ("programs.json", "\"to_tunnel\""),
        ("pins.txt", "maps/PEERS"),
        ("kernel/sysctl.txt", "net/ipv4/ip_forward = 1"),
        ("sysctls.txt", "sysctl net.netfilter.nf_conntrack_tcp_be_liberal 0 1\n"),
        ("rules/iptables.txt", "FLANNEL-POSTRTG"),
        ("agent/cmdline.txt", "--iface=eth0"),
        ("subnet.env", "FLANNEL_SUBNET="),
        ("logs.txt", "journalctl"),
    ] {
        ensure!(find(&files, name)?.contains(text), "{text} in {name}:\n{}", find(&files, name)?);
    }

    // Without an agent most of it is still there, and the rest is accounted for.
    agent.kill9()?;
    let files = unpacked(&agent)?;
    ensure!(find(&files, "maps.json")?.contains("\"mode\""));
    ensure!(find(&files, "errors.txt")?.contains("agent/cmdline.txt: no agent answers"));
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
    let listed = agent.node().run(["sh", "-c", &format!("cd {at} && {command} | tar -tzf -")])?;
    ensure!(listed.stdout.lines().any(|line| line.ends_with("/status.json")), "{listed:?}");
    ensure!(listed.stderr.is_empty(), "{listed:?}");
    ensure!(fs::read_dir(dir.path())?.next().is_none(), "no file is made");
    Ok(())
}

#[test]
fn planted_secrets_are_not_in_it() -> Result<()> {
    const SECRET: &str = "hunter2hunter2";
    const KEY: &str = "0x0123456789abcdef0123456789abcdef01234567";
    let pair = TwoNodes::new("secrets", VXLAN)?;
    let mut options = pair.options()?.flag("--etcd-username=root").flag(&format!("--etcd-password={SECRET}"));
    options.environment.push(("FLANNELD_KUBE_TOKEN".to_owned(), SECRET.to_owned()));
    // It cannot log in, and that is no matter here: it runs, and its command line can be read.
    let agent = pair.a.agent(options)?;
    agent.wait_status("an answer", |status| {
        ensure!(status["pid"].is_u64(), "{status}");
        Ok(())
    })?;
    // Of others: a rule of theirs is left out, and one that names flannel is taken along without
    // its secrets.
    pair.a.sh(&format!("iptables -A FORWARD -m comment --comment {SECRET} -j ACCEPT"))?;
    for text in [
        format!("flannel password={SECRET}"),
        format!("flannel api_key: \"{SECRET}\""),
        format!("flannel at http://root:{SECRET}@192.168.1.12:2379"),
    ] {
        pair.a.run(["iptables", "-A", "FORWARD", "-m", "comment", "--comment", &text, "-j", "ACCEPT"])?;
    }
    let ends = "src 192.168.1.11 dst 192.168.1.12 proto ah spi 0x77 mode tunnel";
    let planted = pair.a.command(["sh", "-c", &format!("ip xfrm state add {ends} auth 'hmac(sha1)' {KEY}")]);
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
        ensure!(!text.contains(SECRET) && !text.contains(&KEY[2..]), "a secret in {path}");
    }
    Ok(())
}
