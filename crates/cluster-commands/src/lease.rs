//! `flannel-agent lease`: the leases of all nodes in etcd, for operators of hosts without
//! Kubernetes.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    net::IpAddr,
};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use flannel_cluster::compare::{ClusterProblem, NodeClaims, PeerFindings, PublishedEnd, compare};
use flannel_command::{Answer, NoResult, Output, PrintOptions, json};
use flannel_document::Document;
use flannel_host::{duration, family::Family, words::count};
use flannel_options::EtcdAccess;
use flannel_store::{
    etcd::{LeaseDirectory, ListedLease},
    tunnel_end,
};
use flannel_terminal::{color::Paint, table};
use ipnet::IpNet;
use serde::Serialize;

/// The exit code if leases contradict each other, or one of them is none.
const FOUND: u8 = 1;

/// The subcommands of `lease`.
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Print all leases and their faults
    List(ListOptions),
    /// Print one lease with its key and its value
    Show(ShowOptions),
    /// Delete the lease of a node that is gone, so that its peers drop their routes at once. A node
    /// whose agent still runs takes one again
    Release(ReleaseOptions),
}

/// The way to etcd, and the output format.
#[derive(Debug, Args)]
pub struct ListOptions {
    #[command(flatten)]
    print: PrintOptions,
    #[command(flatten)]
    access: EtcdAccess,
}

/// The lease to print.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// Its subnet, its key, an address in its subnet, or the public address of its node
    #[arg(value_name = "LEASE")]
    lease: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    access: EtcdAccess,
}

/// The lease to delete.
#[derive(Debug, Args)]
pub struct ReleaseOptions {
    /// Its subnet, its key, an address in its subnet, or the public address of its node
    #[arg(value_name = "LEASE")]
    lease: String,
    #[command(flatten)]
    access: EtcdAccess,
}

/// Adds the flags of etcd that the environment has, under the names of the agent's own variables.
/// The line wins, and an empty variable is an unset one.
pub fn read_environment(
    args: &mut Vec<OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) {
    let env: HashMap<OsString, OsString> = env.into_iter().collect();
    for name in EtcdAccess::FLAGS {
        let variable = format!("FLANNELD_{}", name.to_uppercase().replace('-', "_"));
        let flag = format!("--{name}");
        let is_given = args.iter().filter_map(|arg| arg.to_str()).any(|arg| {
            arg.strip_prefix(&flag)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        });
        if let Some(value) = env
            .get(OsStr::new(&variable))
            .filter(|value| !value.is_empty() && !is_given)
        {
            let mut flag = OsString::from(flag + "=");
            flag.push(value);
            args.push(flag);
        }
    }
}

/// Runs the command.
pub async fn run(command: &LeaseCommand) -> anyhow::Result<Answer> {
    let answer = match command {
        LeaseCommand::List(options) => list(options).await,
        LeaseCommand::Show(options) => show(options).await.map(Answer::from),
        LeaseCommand::Release(options) => release(options).await.map(Answer::from),
    };
    answer.map_err(|error| error.context(NoResult("the leases are not known")))
}

fn directory(access: &EtcdAccess) -> anyhow::Result<LeaseDirectory> {
    let options = access.options().map_err(|mistakes| {
        let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        anyhow!("{}", mistakes.join("; "))
    })?;
    Ok(LeaseDirectory::new(&options))
}

/// The leases of all nodes in etcd, and the problems between them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Listing {
    /// The problems between leases.
    problems: Vec<ClusterProblem>,
    /// The leases, by their subnets.
    leases: Vec<LeaseRow>,
}

impl Document for Listing {
    const NAME: &'static str = "lease-list";
}

/// A lease in etcd.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeaseRow {
    /// The last part of its key.
    name: String,
    /// Its whole key.
    key: String,
    /// The subnets of the node's pods.
    subnets: Vec<String>,
    /// The addresses at which peers reach the node.
    public_addresses: Vec<String>,
    /// The type of the backend; empty for some.
    backend: String,
    /// The node's VTEP MAC or public key, with its name; absent if it has none.
    end: Option<String>,
    /// True if it does not end.
    reservation: bool,
    /// Seconds until it ends unless it is renewed; absent for a reservation.
    expires_in: Option<u64>,
    /// The revision of its last change.
    revision: i64,
    /// The value as it is written; absent if the entry is not a lease.
    value: Option<String>,
    /// The reason why the entry is not a lease.
    error: Option<String>,
}

impl Document for LeaseRow {
    const NAME: &'static str = "lease-show";
}

impl LeaseRow {
    fn new(listed: &ListedLease) -> Self {
        let lease = listed.lease.as_ref().ok();
        let subnets = |family: Family| Some(lease?.key.subnet(family)?.to_string());
        Self {
            name: listed.name.clone(),
            key: listed.key.clone(),
            subnets: Family::BOTH.into_iter().filter_map(subnets).collect(),
            public_addresses: lease
                .iter()
                .flat_map(|lease| lease.attrs.addresses())
                .map(|address| address.to_string())
                .collect(),
            backend: lease
                .map(|lease| lease.attrs.backend_type.to_string())
                .unwrap_or_default(),
            end: lease.and_then(|lease| lease.attrs.end()),
            reservation: listed.etcd_lease.is_none(),
            expires_in: listed.expires_in.map(|left| left.as_secs()),
            revision: listed.modified,
            value: lease.map(|lease| lease.attrs.to_json()),
            error: listed.lease.as_ref().err().cloned(),
        }
    }

    /// The subnet, or the key of an entry that is not a lease.
    fn title(&self) -> String {
        if self.subnets.is_empty() {
            self.name.clone()
        } else {
            self.subnets.join(",")
        }
    }

    fn end_text(&self) -> String {
        match self.expires_in {
            _ if self.reservation => "never".to_owned(),
            Some(left) => format!("in {}", duration::format(left)),
            None => "now".to_owned(),
        }
    }

    /// Returns true if the operator means this lease.
    fn is_named(&self, text: &str) -> bool {
        let address: Option<IpAddr> = text.parse().ok();
        let holds = |subnet: &String| {
            subnet == text
                || address.is_some_and(|address| {
                    subnet
                        .parse()
                        .is_ok_and(|net: IpNet| net.contains(&address))
                })
        };
        self.name == text
            || self.key == text
            || self.subnets.iter().any(holds)
            || self.public_addresses.iter().any(|public| public == text)
    }
}

async fn list(options: &ListOptions) -> anyhow::Result<Answer> {
    let listed = directory(&options.access)?.leases().await?;
    let listing = Listing::new(&listed);
    let is_well =
        listing.problems.is_empty() && listing.leases.iter().all(|lease| lease.error.is_none());
    let code = if is_well { 0 } else { FOUND };
    Ok(Answer {
        text: options.print.print(&listing, |paint| text(&listing, paint)),
        code,
    })
}

impl Listing {
    fn new(listed: &[ListedLease]) -> Self {
        let claims: Vec<NodeClaims> = listed.iter().filter_map(claims).collect();
        Self {
            problems: compare(&claims, &PeerFindings::default()),
            leases: listed.iter().map(LeaseRow::new).collect(),
        }
    }
}

/// A node is known by its first address: leases have no names.
fn claims(listed: &ListedLease) -> Option<NodeClaims> {
    let lease = listed.lease.as_ref().ok()?;
    let addresses: Vec<IpAddr> = lease.attrs.addresses().collect();
    let name = format!("{} ({})", listed.name, addresses.first()?);
    let data = [&lease.attrs.backend_data, &lease.attrs.backend_v6_data];
    let end = data
        .into_iter()
        .flatten()
        .find_map(tunnel_end)
        .map(|(_, end)| end);
    let published = Family::BOTH.into_iter().filter_map(|family| {
        let subnet = lease.key.subnet(family)?;
        let address = *addresses
            .iter()
            .find(|address| Family::of(**address) == family)?;
        Some(PublishedEnd {
            subnet,
            address,
            end: end.clone(),
            vni: None,
        })
    });
    Some(NodeClaims::of_published(
        name,
        published.collect(),
        &lease.attrs.backend_type,
    ))
}

fn text(listing: &Listing, paint: Paint) -> String {
    let mut out = format!("{}\n", count(listing.leases.len(), "lease", "leases"));
    let broken = listing
        .leases
        .iter()
        .filter_map(|lease| Some(format!("{}: {}", lease.name, lease.error.as_ref()?)));
    let lines: Vec<String> = listing
        .problems
        .iter()
        .map(|problem| problem.text.clone())
        .chain(broken)
        .collect();
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in &lines {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", paint.bad(line));
    }
    if listing.leases.is_empty() {
        return out;
    }
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let row = |lease: &LeaseRow| {
        [
            lease.title(),
            or_dash(lease.public_addresses.join(",")),
            or_dash(lease.backend.clone()),
            or_dash(lease.end.clone().unwrap_or_default()),
            lease.end_text(),
        ]
    };
    let header = ["SUBNET", "ADDRESS", "BACKEND", "END", "EXPIRES"].map(|name| paint.head(name));
    out.push('\n');
    out + &table::render_rows(&header, &listing.leases.iter().map(row).collect::<Vec<_>>())
}

/// The one lease that the operator means.
fn named(listed: Vec<ListedLease>, text: &str) -> anyhow::Result<(ListedLease, LeaseRow)> {
    let number = listed.len();
    let rows = listed
        .into_iter()
        .map(|listed| (LeaseRow::new(&listed), listed));
    let mut found: Vec<_> = rows
        .filter(|(row, _)| row.is_named(text))
        .map(|(row, listed)| (listed, row))
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!(
            "none of {} is {text}: see `flannel-agent lease list`",
            count(number, "lease", "leases")
        ),
        several => {
            let names: Vec<String> = found.iter().map(|(_, row)| row.name.clone()).collect();
            bail!(
                "{several} leases are {text} ({}): name one by its subnet",
                names.join(", ")
            )
        }
    }
}

async fn show(options: &ShowOptions) -> anyhow::Result<String> {
    let (_, row) = named(directory(&options.access)?.leases().await?, &options.lease)?;
    if options.output.is_json() {
        return Ok(json(&row));
    }
    let lines = [
        ("key", row.key.clone()),
        ("subnet", row.title()),
        ("address", row.public_addresses.join(", ")),
        ("backend", row.backend.clone()),
        ("end", row.end.clone().unwrap_or_else(|| "none".to_owned())),
        ("expires", row.end_text()),
        ("revision", row.revision.to_string()),
        ("value", row.value.clone().or(row.error).unwrap_or_default()),
    ];
    Ok(lines
        .map(|(name, value)| format!("{name:<10}{value}\n"))
        .concat())
}

async fn release(options: &ReleaseOptions) -> anyhow::Result<String> {
    let mut directory = directory(&options.access)?;
    let (listed, row) = named(directory.leases().await?, &options.lease)?;
    if !directory.release(&listed).await? {
        bail!(
            "lease {} changed at this moment, so its agent runs; it is not released",
            row.name
        );
    }
    Ok(format!(
        "released {} of {}\n",
        row.title(),
        row.public_addresses.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use flannel_store::Entry;

    use super::*;

    fn listed(name: &str, value: &str) -> ListedLease {
        let entry = Entry::parse(name, value.as_bytes(), 1, 7);
        ListedLease {
            name: name.to_owned(),
            key: format!("/coreos.com/network/subnets/{name}"),
            lease: entry.lease.map_err(|bad| bad.to_string()),
            etcd_lease: Some(1),
            expires_in: Some(std::time::Duration::from_secs(3_700)),
            modified: 7,
        }
    }

    fn vxlan(address: &str, mac: &str) -> String {
        format!(
            r#"{{"PublicIP":"{address}","BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"02:00:00:00:00:{mac}"}}}}"#
        )
    }

    #[test]
    fn leases_are_listed_with_what_contradicts() {
        let reservation = ListedLease {
            etcd_lease: None,
            expires_in: None,
            ..listed("10.5.2.0-24", &vxlan("192.0.2.2", "01"))
        };
        let listing = Listing::new(&[
            listed("10.5.1.0-24", &vxlan("192.0.2.1", "01")),
            reservation,
            listed("10.5.3.0-24", "x"),
        ]);
        let shown = text(&listing, Paint(false));
        assert!(
            shown.starts_with("3 leases\n\n2 nodes have the VTEP MAC 02:00:00:00:00:01"),
            "{shown}"
        );
        assert!(shown.contains("\n10.5.3.0-24: malformed value"), "{shown}");
        let row = "10.5.2.0/24  192.0.2.2  vxlan    VTEP MAC 02:00:00:00:00:01  never\n";
        assert!(shown.contains(row), "{shown}");
        assert!(shown.contains("  in 1h1m\n"), "{shown}");
    }

    #[test]
    fn a_lease_has_several_names() {
        let row = LeaseRow::new(&listed("10.5.1.0-24", &vxlan("192.0.2.1", "01")));
        for name in [
            "10.5.1.0/24",
            "10.5.1.0-24",
            "10.5.1.77",
            "192.0.2.1",
            "/coreos.com/network/subnets/10.5.1.0-24",
        ] {
            assert!(row.is_named(name), "{name}");
        }
        for name in ["10.5.2.1", "192.0.2.2", "10.5.1.0/25", ""] {
            assert!(!row.is_named(name), "{name}");
        }
    }

    #[test]
    fn one_lease_is_meant_or_none() {
        let leases = || {
            vec![
                listed("10.5.1.0-24", &vxlan("192.0.2.1", "01")),
                listed("10.5.2.0-24", &vxlan("192.0.2.1", "02")),
            ]
        };
        assert_eq!(
            named(leases(), "10.5.2.0/24").expect("one").1.name,
            "10.5.2.0-24"
        );
        let several = named(leases(), "192.0.2.1").expect_err("two").to_string();
        assert_eq!(
            several,
            "2 leases are 192.0.2.1 (10.5.1.0-24, 10.5.2.0-24): name one by its subnet"
        );
        assert!(named(leases(), "10.9.0.1").is_err());
    }

    #[test]
    fn the_environment_counts_as_for_the_agent() {
        let args = |line: &[&str], env: &[(&str, &str)]| {
            let mut args: Vec<OsString> = line.iter().map(OsString::from).collect();
            read_environment(
                &mut args,
                env.iter().map(|(name, value)| (name.into(), value.into())),
            );
            args.iter()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        let env = [
            ("FLANNELD_ETCD_ENDPOINTS", "http://a:1"),
            ("FLANNELD_ETCD_PREFIX", ""),
        ];
        assert_eq!(
            args(&["lease", "list"], &env),
            ["lease", "list", "--etcd-endpoints=http://a:1"]
        );
        let given = ["lease", "list", "--etcd-endpoints", "http://b:1"];
        assert_eq!(args(&given, &env), given);
    }

    #[test]
    fn the_schemas_are_those_of_the_types() {
        flannel_json_schema::check::<Listing>(Listing::NAME, Listing::SCHEMA_VERSION);
        flannel_json_schema::check::<LeaseRow>(LeaseRow::NAME, LeaseRow::SCHEMA_VERSION);
    }
}
