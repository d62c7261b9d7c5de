//! A helper or a file that hangs while the agent runs: it costs the store, and no other part.
//!
//! The file is a FIFO without a writer: open(2) of it does not return, as on a network file system
//! whose server is away.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use super::{
    node,
    support::{ACCOUNT, Pod, in_pod, run},
};

const KUBECONFIG: &str = "/run/kubeconfig";
const PLUGIN: &str = "/run/plugin";
/// While this file exists, the plugin hangs.
const HANGS: &str = "/run/plugin-hangs";
/// Health checks.
const HEALTH_PORT: u16 = 18_081;
/// The route to the peer.
const ROUTE: &str = "10.5.2.0/24";

/// A kubeconfig of the double, whose user has these credentials.
fn kubeconfig(pod: &Pod, user: &str) {
    let (port, authority) = (pod.double.port(), pod.authority.file());
    let authority = authority.display();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", \
         certificate-authority: \"{authority}\"}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: \
         {user}}}]\n"
    );
    fs::write(KUBECONFIG, text).expect("written");
}

/// Puts a FIFO without a writer in the place of a file.
fn hang(path: &Path) {
    fs::remove_file(path).expect("the file");
    mkfifo(path, Mode::from_bits_truncate(0o600)).expect("a FIFO");
}

fn has_route() -> bool {
    let output = Command::new("ip")
        .args(["route", "show", ROUTE])
        .output()
        .expect("ip");
    !output.stdout.is_empty()
}

/// The status of a health check.
fn health() -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", HEALTH_PORT)).expect("the health port");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a timeout");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.lines().next().unwrap_or_default().to_owned()
}

/// Runs an agent with these flags until it is ready, lets something hang, and ends its credentials.
fn while_hanging(
    flags: &'static [&'static str],
    prepare: impl FnOnce(&Pod) + Send + 'static,
    hang: impl FnOnce(&Pod) + Send + 'static,
    named: &'static str,
) {
    in_pod(async move |mut pod| {
        pod.double.change(|state| {
            state.require("first");
            state.put(node("own", 1));
            state.put(node("peer2", 2));
        });
        prepare(&pod);
        let port = format!("--healthz-port={HEALTH_PORT}");
        pod.start_with(&[flags, &[&port, "--healthz-ip=127.0.0.1"]].concat());
        pod.until_ready().await;
        hang(&pod);
        pod.double.change(|state| {
            state.require("second");
            state.break_streams();
        });
        // The reason names what hangs, and the log has it.
        let status = pod
            .until("the reason", |status| {
                status["store"]["reason"]
                    .as_str()
                    .is_some_and(|text| text.contains(named))
            })
            .await;
        assert_eq!(status["store"]["in_sync"], false, "{status}");
        pod.until("a log line", |_| Pod::log().contains(named))
            .await;
        assert!(has_route());
        run(&format!("ip route del {ROUTE}"));
        pod.until("the route", |_| has_route()).await;
        assert_eq!(health(), "HTTP/1.1 200 OK");
        pod.terminate(Duration::from_secs(5)).await;
    });
}

#[test]
fn a_credential_plugin_that_hangs_when_the_token_expires_costs_only_the_store() {
    let prepare = |pod: &Pod| {
        // A token that has expired is asked for again with each connection.
        let script = format!(
            "#!/bin/sh\n[ -e {HANGS} ] && exec sleep 1000\n\
             echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\
             \"kind\":\"ExecCredential\",\"status\":{{\"token\":\"first\",\
             \"expirationTimestamp\":\"2026-01-02T03:04:05Z\"}}}}'\n"
        );
        fs::write(PLUGIN, script).expect("written");
        fs::set_permissions(PLUGIN, fs::Permissions::from_mode(0o755)).expect("a mode");
        let version = "client.authentication.k8s.io/v1";
        kubeconfig(
            pod,
            &format!(
                "{{exec: {{apiVersion: {version}, command: {PLUGIN}, interactiveMode: Never}}}}"
            ),
        );
    };
    let hang = |_: &Pod| fs::write(HANGS, "").expect("written");
    while_hanging(
        &["--kubeconfig-file=/run/kubeconfig"],
        prepare,
        hang,
        PLUGIN,
    );
}

#[test]
fn a_kubeconfig_that_hangs_costs_only_the_store() {
    let prepare = |pod: &Pod| kubeconfig(pod, "{token: first}");
    while_hanging(
        &["--kubeconfig-file=/run/kubeconfig"],
        prepare,
        |_| hang(Path::new(KUBECONFIG)),
        KUBECONFIG,
    );
}

#[test]
fn a_certificate_of_a_kubeconfig_that_hangs_costs_only_the_store() {
    let prepare = |pod: &Pod| kubeconfig(pod, "{token: first}");
    while_hanging(
        &["--kubeconfig-file=/run/kubeconfig"],
        prepare,
        |pod| hang(&pod.authority.file()),
        KUBECONFIG,
    );
}

#[test]
fn a_certificate_of_the_service_account_that_hangs_costs_only_the_store() {
    while_hanging(
        &[],
        |_| (),
        |_| hang(&Path::new(ACCOUNT).join("ca.crt")),
        "secrets/kubernetes.io/serviceaccount",
    );
}

#[test]
fn a_token_of_the_service_account_that_hangs_costs_only_the_store() {
    while_hanging(
        &[],
        |_| (),
        |_| hang(&Path::new(ACCOUNT).join("token")),
        "secrets/kubernetes.io/serviceaccount",
    );
}
