//! The agent as a process among others: health checks, the service manager, its log.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::net::UnixDatagram,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    AgentOptions, Lab, Node, ThreeNodes,
    cluster::{VXLAN, etcd::CONFIG_KEY},
    eventually, throughout,
};
use serde_json::{Value, json};

const PORT: u16 = 8471;

/// Waits until `/readyz` answers with this, or with text that begins so.
fn readyz(node: &Node, code: u16, text: &str) -> Result<()> {
    eventually(&format!("/readyz {code}"), Duration::from_secs(20), || {
        let answer = node.http_get(PORT, "/readyz")?;
        ensure!(answer.0 == code && answer.1.starts_with(text), "{answer:?}");
        Ok(())
    })
}

/// Returns the next message that the service manager receives.
fn heard(manager: &UnixDatagram) -> Result<String> {
    let mut buffer = [0; 512];
    let length = manager.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

#[test]
fn health_and_the_service_manager_follow_readiness() -> Result<()> {
    let net = ThreeNodes::unconfigured("health")?;
    let manager = UnixDatagram::bind(net.a.outside_path("/run/notify.sock"))?;
    manager.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut options = net.options()?.flag(&format!("--healthz-port={PORT}"));
    options
        .environment
        .push(("NOTIFY_SOCKET".to_owned(), "/run/notify.sock".to_owned()));
    let agent = net.a.agent(options)?;

    // Before there is any configuration.
    eventually("/healthz", Duration::from_secs(20), || {
        net.a.http_get(PORT, "/healthz")
    })?;
    assert_eq!(
        net.a.http_get(PORT, "/healthz")?,
        (200, "flanneld is running".to_owned())
    );
    readyz(
        &net.a,
        503,
        "flanneld is not ready yet: waiting for the network configuration: ",
    )?;
    let waiting = "STATUS=waiting for the network configuration: ";
    let first = heard(&manager)?;
    ensure!(first.starts_with(waiting), "{first}");

    net.etcd.put(CONFIG_KEY, VXLAN, None)?;
    agent.wait_ready()?;
    readyz(&net.a, 200, "flanneld is ready")?;
    let mut next = heard(&manager)?;
    while next.starts_with("STATUS=") {
        next = heard(&manager)?;
    }
    assert_eq!(next, "READY=1\nSTATUS=");

    net.etcd.stop()?;
    readyz(
        &net.a,
        503,
        "flanneld is not ready yet: store out of reach: ",
    )?;
    assert_eq!(net.a.http_get(PORT, "/healthz")?.0, 200);
    net.etcd.start()?;
    readyz(&net.a, 200, "flanneld is ready")?;
    // Longer than a main loop may be silent.
    throughout("readiness", Duration::from_secs(32), || {
        let (code, text) = net.a.http_get(PORT, "/readyz")?;
        ensure!(code == 200, "{text}");
        Ok(())
    })?;

    agent.sigterm_and_wait()?;
    assert_eq!(heard(&manager)?, "STOPPING=1", "and READY=1 once only");
    Ok(())
}

#[test]
fn a_port_in_use_keeps_no_pod_waiting() -> Result<()> {
    const METRICS: u16 = 8472;
    let net = ThreeNodes::new("inuse", VXLAN)?;
    let taken = net.a.bound(
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, METRICS)),
        TcpListener::bind,
    )?;
    let agent = net
        .a
        .ready_agent(net.options()?.flag(&format!("--metrics-port={METRICS}")))?;
    let problem = agent.problem("listener")?;
    ensure!(
        problem["subject"] == format!("127.0.0.1:{METRICS}") && problem["severity"] == "notice",
        "{problem}"
    );
    let text = problem["text"].as_str().context("a text")?;
    ensure!(
        text.contains("for metrics") && text.ends_with(" has the port"),
        "{text}"
    );
    let shown = agent.cli(&["status"])?.stdout;
    ensure!(
        shown.contains(text) && shown.contains("--metrics-port"),
        "{shown}"
    );
    drop(taken);
    eventually("metrics", Duration::from_secs(10), || {
        let (code, metrics) = net.a.http_get(METRICS, "/metrics")?;
        ensure!(
            code == 200 && metrics.contains("flannel_ready 1"),
            "{code}: {metrics}"
        );
        Ok(())
    })?;
    ensure!(
        agent.status()?["problems"] == json!([]),
        "{}",
        agent.status()?["problems"]
    );
    Ok(())
}

/// The sentence of the log is in the status, in its JSON and in `/readyz`.
#[test]
fn a_start_that_waits_says_why() -> Result<()> {
    let net = ThreeNodes::unconfigured("waits")?;
    net.etcd.put(
        "/malformed/config",
        r#"{"Network":"10.244.0.0","Backend":{"Type":"vxlan"}}"#,
        None,
    )?;
    let options = |flag: &str| {
        anyhow::Ok(
            net.options()?
                .flag(&format!("--healthz-port={PORT}"))
                .flag(flag),
        )
    };
    for (cause, flag, words) in [
        (
            "unreachable",
            "--etcd-endpoints=http://192.168.1.99:2379",
            "192.168.1.99",
        ),
        ("absent", "--etcd-prefix=/absent", "/absent/config"),
        ("malformed", "--etcd-prefix=/malformed", "10.244.0.0"),
    ] {
        let agent = net.a.agent(options(flag)?)?;
        let problem = agent
            .problem("start_waits")
            .with_context(|| cause.to_owned())?;
        let text = problem["text"].as_str().context("a text")?;
        ensure!(
            text.contains(words) && problem["severity"] == "critical",
            "{cause}: {problem}"
        );
        ensure!(problem["since"].as_u64().is_some(), "{cause}: {problem}");
        let shown = agent.cli_any(&["status"])?.stdout;
        ensure!(shown.contains(text), "{cause}: {shown}");
        readyz(&net.a, 503, &format!("flanneld is not ready yet: {text}"))?;
        agent.sigterm_and_wait()?;
    }
    Ok(())
}

#[test]
fn a_tls_file_that_is_missing_ends_the_agent_at_once() -> Result<()> {
    let lab = Lab::new("tls")?;
    let node = lab.node("n")?;
    let options =
        AgentOptions::etcd("https://127.0.0.1:2379")?.flag("--etcd-cafile=/run/absent.pem");
    let (code, log) = node.agent(options)?.wait_end()?;
    assert_eq!(code, 1, "{log}");
    assert!(
        log.contains("cannot read --etcd-cafile=/run/absent.pem: No such file"),
        "{log}"
    );
    Ok(())
}

/// Programs that read the log see why the agent ended.
#[test]
fn the_error_that_ends_the_agent_is_a_record_of_the_log() -> Result<()> {
    const ERROR: &str = "cannot read --etcd-cafile=/run/absent.pem: No such file";
    let lab = Lab::new("last-record")?;
    let node = lab.node("n")?;
    for format in ["json", "klog"] {
        let options = AgentOptions::etcd("https://127.0.0.1:2379")?;
        let options = options.flags(&[
            "--etcd-cafile=/run/absent.pem",
            &format!("--log-format={format}"),
        ]);
        let (code, log) = node.agent(options)?.wait_end()?;
        let last = log.lines().last().with_context(|| format.to_owned())?;
        ensure!(code == 1 && last.contains(ERROR), "{format}: {code}: {log}");
        if format == "json" {
            let record: Value = serde_json::from_str(last).with_context(|| last.to_owned())?;
            ensure!(record["level"] == "ERROR", "{record}");
        } else {
            ensure!(last.starts_with('E') && last.contains("] "), "{last}");
        }
    }
    Ok(())
}

#[test]
fn the_log_is_json_on_request_and_holds_no_password() -> Result<()> {
    const PASSWORD: &str = "correct-horse-battery";
    let net = ThreeNodes::new("log", VXLAN)?;
    net.etcd.client(async |client| {
        client.user_add("root", PASSWORD, None).await?;
        client.user_grant_role("root", "root").await?;
        client.auth_enable().await.map(drop)
    })?;
    let options = net
        .options()?
        .flags(&["--log-format=json", "-v=10", "--etcd-username=root"]);
    let wrong = AgentOptions {
        environment: password("incorrect-horse"),
        ..options.clone()
    };
    let agent = net.b.agent(wrong)?;
    eventually("the refusal", Duration::from_secs(20), || {
        agent.child().log().contains("refuses").then_some(())
    })?;
    agent.sigterm_and_wait()?;
    assert!(!agent.child().log().contains("incorrect-horse"));

    let agent = net.a.ready_agent(AgentOptions {
        environment: password(PASSWORD),
        ..options
    })?;
    agent.sigterm_and_wait()?;
    let log = agent.child().log();
    assert!(!log.contains(PASSWORD), "{log}");
    for line in log.lines() {
        let object: Value = serde_json::from_str(line)?;
        assert!(
            object["level"].is_string() && object["message"].is_string(),
            "{line}"
        );
    }
    assert!(log.contains("lease acquired"), "{log}");
    Ok(())
}

#[test]
fn the_log_has_the_form_of_stock_flannels_on_request() -> Result<()> {
    let net = ThreeNodes::new("klog", VXLAN)?;
    let agent = net
        .a
        .ready_agent(net.options()?.flag("--log-format=klog"))?;
    agent.sigterm_and_wait()?;
    let log = agent.child().log();
    for line in log.lines() {
        let (header, _) = line.split_once("] ").with_context(|| line.to_owned())?;
        let words: Vec<&str> = header.split_ascii_whitespace().collect();
        let (severity, date) = words[0].split_at(1);
        let is_place = words.last().is_some_and(|place| place.contains(".rs:"));
        ensure!(
            "IWE".contains(severity) && date.len() == 4 && words.len() == 4 && is_place,
            "{line}"
        );
    }
    ensure!(log.contains("lease acquired"), "{log}");
    Ok(())
}

fn password(text: &str) -> Vec<(String, String)> {
    vec![("FLANNELD_ETCD_PASSWORD".to_owned(), text.to_owned())]
}
