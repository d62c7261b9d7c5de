//! The view of flows: names of hosts, and the observer API of Hubble.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueHint};

use super::check::Checks;

/// The flows that the ring holds without the flag.
const RING: i64 = 4095;
/// Events a second without the flag.
const RATE: i64 = 1000;

/// Names of hosts, and where Hubble's clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowOptions {
    /// The file with names of hosts.
    pub hosts: Option<PathBuf>,
    /// The unix socket for clients of Hubble.
    pub socket: Option<PathBuf>,
    /// The address for clients of Hubble, and the files of TLS there.
    pub listen: Option<(SocketAddr, ObserverFiles)>,
    /// Flows that are kept for clients.
    pub ring: usize,
    /// Packets a second that are reported, at most.
    pub rate: u32,
}

/// The files of TLS for clients of Hubble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients.
    pub client_ca: PathBuf,
}

impl FlowOptions {
    /// The files that the agent reads.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let tls = self
            .listen
            .iter()
            .flat_map(|(_, files)| [&files.certificate, &files.key, &files.client_ca]);
        self.hosts.iter().chain(tls)
    }
}

/// Flags of the view of flows.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Flows")]
pub(super) struct FlowFlags {
    /// File with names of hosts outside the cluster for the names in flows, in the format of
    /// /etc/hosts; absolute path, read at most once a minute and only while names are asked for
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    hosts_file: String,
    /// Unix socket at which clients of Hubble's observer API read the flows of this node, made with
    /// mode 0660; absolute path, empty for none
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    hubble_socket: String,
    /// Address and port at which they do so over TLS, with a client certificate: needs the three
    /// flags of files; empty for none
    #[arg(
        long,
        value_name = "IP:PORT",
        default_value = "",
        hide_default_value = true
    )]
    hubble_listen: String,
    /// Certificate for --hubble-listen, PEM; absolute path. It and the next two are read again when
    /// they change
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    hubble_certfile: String,
    /// Its private key, PEM; absolute path
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    hubble_keyfile: String,
    /// Certificates of the authorities whose clients may read flows, PEM; absolute path
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    hubble_client_cafile: String,
    /// Flows that are kept in memory for clients of Hubble, 1 to 65535
    #[arg(long, value_name = "FLOWS", default_value_t = RING, allow_negative_numbers = true)]
    hubble_flows: i64,
    /// Packets a second that the programs report for them at most, 1 to 100000; the number of
    /// others is reported
    #[arg(long, value_name = "PACKETS", default_value_t = RATE, allow_negative_numbers = true)]
    hubble_rate: i64,
}

impl FlowFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> FlowOptions {
        FlowOptions {
            hosts: file(checks, "hosts-file", &self.hosts_file),
            socket: file(checks, "hubble-socket", &self.hubble_socket),
            listen: self.listen(checks),
            ring: in_range(
                checks,
                "hubble-flows",
                self.hubble_flows,
                65_535,
                "1 to 65535 flows",
            ) as usize,
            rate: in_range(
                checks,
                "hubble-rate",
                self.hubble_rate,
                100_000,
                "1 to 100000 packets a second",
            ),
        }
    }

    fn listen(&self, checks: &mut Checks) -> Option<(SocketAddr, ObserverFiles)> {
        const FLAG: &str = "hubble-listen";
        const FILES: &str = "no address without all of --hubble-certfile, --hubble-keyfile and \
            --hubble-client-cafile";
        let address = checks.optional(
            FLAG,
            &self.hubble_listen,
            "an IP address and a port, such as 0.0.0.0:4244",
        );
        let certificate = file(checks, "hubble-certfile", &self.hubble_certfile);
        let key = file(checks, "hubble-keyfile", &self.hubble_keyfile);
        let client_ca = file(checks, "hubble-client-cafile", &self.hubble_client_cafile);
        let address = address?;
        if let (Some(certificate), Some(key), Some(client_ca)) = (certificate, key, client_ca) {
            return Some((
                address,
                ObserverFiles {
                    certificate,
                    key,
                    client_ca,
                },
            ));
        }
        checks.refuse(FLAG, address, FILES);
        None
    }
}

/// A file by its absolute path; `None` if the value is empty.
fn file(checks: &mut Checks, flag: &'static str, value: &str) -> Option<PathBuf> {
    let path = Some(PathBuf::from(value)).filter(|_| !value.is_empty())?;
    if !path.is_absolute() {
        checks.refuse(flag, value, "an absolute path");
    }
    Some(path)
}

fn in_range(
    checks: &mut Checks,
    flag: &'static str,
    value: i64,
    most: u32,
    expected: &'static str,
) -> u32 {
    match u32::try_from(value) {
        Ok(value) if (1..=most).contains(&value) => value,
        _ => {
            checks.refuse(flag, value, expected);
            1
        }
    }
}
