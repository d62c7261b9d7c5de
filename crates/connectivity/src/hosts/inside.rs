//! The process in a test namespace: one line of JSON asks, one line answers.
//!
//! It makes its network namespace itself and is all that is in it, so the namespace and the devices
//! in it go with the process, whatever ends it.

use std::{
    io::{Write as _, stdin},
    net::IpAddr,
    os::fd::AsFd as _,
    time::Duration,
};

use anyhow::{Context as _, bail};
use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::{AddressKey, Netlink, Route, RouteKey, protocol};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::unix::pipe::Receiver,
};

use crate::{
    probe::probe,
    serve::serve,
    target::{Outcome, Target},
};

/// The device in the namespace.
pub const DEVICE: &str = "eth0";

/// A question to the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Gives the namespace addresses and routes.
    Configure {
        /// The addresses of its device.
        addresses: Vec<IpNet>,
        /// The gateway of each family.
        gateways: Vec<IpAddr>,
    },
    /// Answers probes from now on.
    Serve {
        /// The name in its answers.
        name: String,
        /// The port of TCP and UDP.
        port: u16,
    },
    /// Probes targets.
    Probe {
        /// The time for a target to answer for the first time.
        patience: Duration,
        /// The targets, as text.
        targets: Vec<String>,
    },
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceAnswer {
    /// It was done.
    Done,
    /// The results of probes.
    Outcomes(Vec<Outcome>),
    /// It could not be done, for this reason.
    Failed(String),
}

/// Makes the namespace, then answers until standard input ends, also in the middle of probes, which
/// may take two minutes. Called on the only thread of the process, which a namespace belongs to.
pub async fn run() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).context(
        "cannot make a network namespace: run this as root on the host, not in a container",
    )?;
    mount_sysfs().context("cannot mount /sys in a test namespace")?;
    let pipe = Receiver::from_owned_fd(stdin().as_fd().try_clone_to_owned()?)
        .context("standard input is no pipe")?;
    let mut asked = BufReader::new(pipe).lines();
    answer(&NamespaceAnswer::Done)?;
    while let Some(line) = asked.next_line().await? {
        let answered = match serde_json::from_str(&line) {
            Ok(Ask::Configure {
                addresses,
                gateways,
            }) => configure(&addresses, &gateways)
                .await
                .map(|()| NamespaceAnswer::Done),
            Ok(Ask::Serve { name, port }) => {
                tokio::spawn(serve_or_say(name, port));
                Ok(NamespaceAnswer::Done)
            }
            Ok(Ask::Probe { patience, targets }) => tokio::select! {
                outcomes = probes(&targets, patience) => outcomes,
                // It asks nothing before it has the answer: it was killed.
                _ = asked.next_line() => return Ok(()),
            },
            Err(error) => Err(error.into()),
        };
        answer(&reply(answered))?;
    }
    Ok(())
}

/// Mounts a /sys with the devices of this namespace, from which the probe reads their MTU. The host
/// does not see it.
fn mount_sysfs() -> nix::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
    mount(
        Some("sysfs"),
        "/sys",
        Some("sysfs"),
        MsFlags::MS_RDONLY,
        none,
    )
}

/// Serves until the process ends. A failure shows in the probes of other hosts; here is its reason.
async fn serve_or_say(name: String, port: u16) {
    if let Err(error) = serve(&name, &[], port).await {
        let _ = writeln!(std::io::stderr(), "error: {}", chain(error.as_ref()));
    }
}

fn reply(answered: anyhow::Result<NamespaceAnswer>) -> NamespaceAnswer {
    answered.unwrap_or_else(|error| NamespaceAnswer::Failed(chain(error.as_ref())))
}

/// Writes at once: the parent waits for the line.
fn answer(reply: &NamespaceAnswer) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(reply)?)?;
    Ok(out.flush()?)
}

async fn configure(addresses: &[IpNet], gateways: &[IpAddr]) -> anyhow::Result<()> {
    let (netlink, _events) = Netlink::connect()?;
    for name in ["lo", DEVICE] {
        let link = netlink
            .link_by_name(name)
            .await?
            .with_context(|| format!("the namespace has no {name}"))?;
        netlink.set_up(link.index).await?;
        if name == "lo" {
            continue;
        }
        for address in addresses {
            let key = AddressKey {
                ifindex: link.index,
                addr: address.addr(),
                prefix_len: address.prefix_len(),
            };
            netlink.add_address(key).await?;
        }
    }
    for gateway in gateways {
        let everything = match Family::of(*gateway) {
            Family::V4 => IpNet::from(Ipv4Net::default()),
            Family::V6 => IpNet::from(Ipv6Net::default()),
        };
        netlink
            .replace_route(
                &RouteKey::main(everything),
                &Route::via(*gateway, None, protocol::BOOT),
            )
            .await?;
    }
    Ok(())
}

async fn probes(targets: &[String], patience: Duration) -> anyhow::Result<NamespaceAnswer> {
    let mut parsed = Vec::with_capacity(targets.len());
    for target in targets {
        match target.parse::<Target>() {
            Ok(target) => parsed.push(target),
            Err(problem) => bail!("{problem}"),
        }
    }
    Ok(NamespaceAnswer::Outcomes(probe(&parsed, patience).await))
}
