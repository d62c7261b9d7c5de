//! The control interface of charon
//! ([VICI](https://docs.strongswan.org/docs/latest/plugins/vici.html)): typed requests, each with a
//! time limit.
//!
//! Secrets are sent and never read back: charon names its shared keys and does not show them. The
//! crate rsvici is not used: of version 0.1.5 a request has no answer when charon ends, while the
//! task behind it reads the closed socket without a pause.

mod message;
mod stream;

use std::{collections::BTreeSet, io, net::Ipv4Addr, path::Path, time::Duration};

use flannel_store::config::IpsecConfig;
use tokio::time::timeout;

use self::{message::Section, stream::ViciStream};
use super::{
    IpsecError,
    names::{self, IpsecEnd},
};
use crate::ipsec::REQID;

/// The time for an answer.
const PATIENCE: Duration = Duration::from_secs(6);
/// The time that charon is given to agree with a peer before it says how that went.
const AGREEMENT: Duration = Duration::from_secs(4);
/// flannel's algorithms of IKE itself.
const IKE_PROPOSAL: &str = "aes256-sha256-modp4096";
/// Words of the log by which a line says why something went wrong.
const REASONS: [&str; 8] = [
    "unable",
    "failed",
    "notify error",
    "no matching",
    "not found",
    "giving up",
    "mismatch",
    "NO_PROPOSAL",
];

/// A peer says the same for two causes.
const OTHERS: &str = "ESPProposal differs there, or its kernel has no ESP or not this algorithm";

/// A connection to charon. After an error it is of no use.
#[derive(Debug)]
pub(super) struct Vici(ViciStream);

/// An IKE_SA: two nodes that know each other, or try to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IkeSa {
    /// The name of its connection.
    pub(super) connection: String,
    /// Its state, such as `ESTABLISHED` or `CONNECTING`.
    pub(super) state: String,
    /// The address of the peer.
    pub(super) remote_host: String,
    /// Seconds since it is established.
    pub(super) established: Option<u64>,
    /// Its children.
    pub(super) children: Vec<ChildSa>,
}

/// A CHILD_SA: the associations of two subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChildSa {
    /// The name of its configuration.
    pub(super) name: String,
    /// Its state, such as `INSTALLED`.
    pub(super) state: String,
    /// Bytes received.
    pub(super) received: u64,
    /// Bytes sent.
    pub(super) sent: u64,
}

impl Vici {
    /// Connects to the process at a socket.
    pub(super) async fn connect(socket: &Path) -> Result<Self, IpsecError> {
        let failed = |error| IpsecError::NoAnswer {
            socket: socket.to_owned(),
            error,
        };
        ViciStream::connect(socket).await.map(Self).map_err(failed)
    }

    /// Loads the secret for a node, or replaces it.
    pub(super) async fn load_key(
        &mut self,
        address: Ipv4Addr,
        config: &IpsecConfig,
    ) -> Result<(), IpsecError> {
        let message = Section::default()
            .value("id", names::shared_key(address))
            .value("type", "IKE")
            .value("data", config.psk.reveal())
            .item("owners", address.to_string());
        self.change("load-shared", &message).await
    }

    /// Removes a secret.
    pub(super) async fn unload_key(&mut self, id: &str) -> Result<(), IpsecError> {
        self.change("unload-shared", &Section::default().value("id", id))
            .await
    }

    /// Returns the names of the secrets.
    pub(super) async fn keys(&mut self) -> Result<BTreeSet<String>, IpsecError> {
        let response = self.ask("get-shared", &Section::default()).await?;
        Ok(response.list_of("keys").iter().cloned().collect())
    }

    /// Loads the connection to a peer. A loaded connection with the same settings stays as it is,
    /// with its associations.
    pub(super) async fn load_connection(
        &mut self,
        own: IpsecEnd,
        peer: IpsecEnd,
        config: &IpsecConfig,
    ) -> Result<(), IpsecError> {
        let message = Section::default()
            .section(&names::connection(own, peer), connection(own, peer, config));
        self.change("load-conn", &message).await
    }

    /// Removes a connection, with its associations.
    pub(super) async fn unload_connection(&mut self, name: &str) -> Result<(), IpsecError> {
        self.change("unload-conn", &Section::default().value("name", name))
            .await
    }

    /// Returns the names of the connections.
    pub(super) async fn connections(&mut self) -> Result<BTreeSet<String>, IpsecError> {
        let response = self.ask("get-conns", &Section::default()).await?;
        Ok(response.list_of("conns").iter().cloned().collect())
    }

    /// Returns the associations.
    pub(super) async fn associations(&mut self) -> Result<Vec<IkeSa>, IpsecError> {
        let command = "list-sas";
        let mut found = Vec::new();
        let mut each = |event: Section| found.extend(event.sections().map(ike_sa));
        let message = Section::default();
        in_time(
            command,
            self.0
                .request(command, &message, Some("list-sa"), &mut each),
        )
        .await?;
        Ok(found)
    }

    /// Asks for associations with a peer. An error says why there are none, in words of charon's
    /// log.
    pub(super) async fn initiate(&mut self, own: IpsecEnd, peer: IpsecEnd) -> Result<(), String> {
        let message = Section::default()
            .value("child", names::child(own, peer))
            .value("ike", names::connection(own, peer))
            .value("timeout", AGREEMENT.as_millis().to_string())
            .value("loglevel", "1");
        let command = "initiate";
        let mut lines = Vec::new();
        let mut each = |event: Section| lines.extend(event.value_of("msg").map(str::to_owned));
        let result = in_time(
            command,
            self.0
                .request(command, &message, Some("control-log"), &mut each),
        )
        .await;
        let outcome = result.and_then(|response| accepted(command, &response));
        outcome.map_err(|error| reason(&lines, peer.address).unwrap_or_else(|| error.to_string()))
    }

    async fn change(&mut self, command: &'static str, message: &Section) -> Result<(), IpsecError> {
        accepted(command, &self.ask(command, message).await?)
    }

    async fn ask(
        &mut self,
        command: &'static str,
        message: &Section,
    ) -> Result<Section, IpsecError> {
        in_time(command, self.0.request(command, message, None, &mut |_| ())).await
    }
}

async fn in_time<T>(
    command: &'static str,
    answer: impl Future<Output = io::Result<T>>,
) -> Result<T, IpsecError> {
    let refused = |problem| IpsecError::Refused { command, problem };
    let late = |_late| refused(format!("no answer within {PATIENCE:?}"));
    timeout(PATIENCE, answer)
        .await
        .map_err(late)?
        .map_err(|error| refused(error.to_string()))
}

fn accepted(command: &'static str, response: &Section) -> Result<(), IpsecError> {
    if response.value_of("success") == Some("yes") {
        return Ok(());
    }
    let problem = response
        .value_of("errmsg")
        .unwrap_or("it does not say why")
        .to_owned();
    Err(IpsecError::Refused { command, problem })
}

/// A connection as flannel configures it.
fn connection(own: IpsecEnd, peer: IpsecEnd, config: &IpsecConfig) -> Section {
    let secret = || Section::default().value("auth", "psk");
    let child = Section::default()
        .item("local_ts", own.subnet.to_string())
        .item("remote_ts", peer.subnet.to_string())
        .item("esp_proposals", config.esp_proposal.as_str())
        .value("start_action", "start")
        .value("close_action", "trap")
        .value("dpd_action", "restart")
        .value("mode", "tunnel")
        .value("reqid", REQID.to_string())
        .value("rekey_time", "1h")
        .value("policies", "no");
    Section::default()
        .value("version", "2")
        .item("local_addrs", own.address.to_string())
        .item("remote_addrs", peer.address.to_string())
        .item("proposals", IKE_PROPOSAL)
        .value("keyingtries", "0")
        .value("encap", if config.udp_encap { "yes" } else { "no" })
        .section("local", secret())
        .section("remote", secret())
        .section(
            "children",
            Section::default().section(&names::child(own, peer), child),
        )
}

fn ike_sa((connection, section): (&str, &Section)) -> IkeSa {
    let text = |name| section.value_of(name).unwrap_or_default().to_owned();
    IkeSa {
        connection: connection.to_owned(),
        state: text("state"),
        remote_host: text("remote-host"),
        established: section
            .value_of("established")
            .and_then(|text| text.parse().ok()),
        children: section
            .section_of("child-sas")
            .into_iter()
            .flat_map(Section::sections)
            .map(child_sa)
            .collect(),
    }
}

fn child_sa((_, section): (&str, &Section)) -> ChildSa {
    let text = |name| section.value_of(name).unwrap_or_default();
    ChildSa {
        name: text("name").to_owned(),
        state: text("state").to_owned(),
        received: text("bytes-in").parse().unwrap_or_default(),
        sent: text("bytes-out").parse().unwrap_or_default(),
    }
}

/// Returns the first line that gives a reason. If requests were only retransmitted, the reason is
/// the missing answer.
fn reason(lines: &[String], address: Ipv4Addr) -> Option<String> {
    let reason = lines
        .iter()
        .find(|line| REASONS.iter().any(|word| line.contains(word)));
    let repeated = lines.iter().any(|line| line.starts_with("retransmit "));
    let reason = reason.map(|line| {
        if line.contains("NO_PROPOSAL_CHOSEN") {
            format!("{line} ({OTHERS})")
        } else {
            line.clone()
        }
    });
    reason.or_else(|| repeated.then(|| no_answer(address)))
}

/// The peer has not answered, in words.
pub(super) fn no_answer(address: Ipv4Addr) -> String {
    format!("{address} has not answered on UDP ports 500 and 4500")
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn the_first_line_that_says_why_is_the_reason() {
        let kernel = [
            "establishing CHILD_SA x{2}",
            "unable to add SAD entry with SPI c0a1 (Protocol not supported)",
            "failed to establish CHILD_SA, keeping IKE_SA",
        ];
        assert_eq!(reason(&lines(&kernel), ADDRESS).as_deref(), Some(kernel[1]));
        let secret = ["received AUTHENTICATION_FAILED notify error"];
        assert_eq!(reason(&lines(&secret), ADDRESS).as_deref(), Some(secret[0]));
        let silent = [
            "sending packet: from a to b",
            "retransmit 1 of request with message ID 0",
        ];
        let expected = "192.0.2.9 has not answered on UDP ports 500 and 4500";
        assert_eq!(reason(&lines(&silent), ADDRESS).as_deref(), Some(expected));
        assert_eq!(reason(&[], ADDRESS), None);
    }

    /// A process that ends is an error at once, not after the time for an answer.
    #[tokio::test]
    async fn a_request_fails_when_the_process_ends() {
        let scratch = tempfile::tempdir().expect("a directory");
        let socket = scratch.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let mut vici = Vici::connect(&socket).await.expect("a connection");
        drop(listener.accept().await.expect("accepted"));
        let refused = vici.keys().await.expect_err("no answer").to_string();
        assert!(
            refused.starts_with("charon refused get-shared: ") && !refused.contains("within"),
            "{refused}"
        );
    }
}
