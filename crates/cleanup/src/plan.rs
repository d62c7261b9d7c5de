//! The steps of a cleanup, in the order in which they are taken.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use aya::programs::TcAttachType;
use flannel_backends::{BackendProcess, is_tunnel, recorded_policies, secret_files};
use flannel_claims::state_dir;
use flannel_datapath::{
    attach::{
        Ledger, PRIORITY,
        filters::{self, FilterId},
        is_our_handle,
    },
    kernel::bpffs,
    pins::schema_of,
};
use flannel_extension::Recorded;
use flannel_host::family::Family;
use flannel_netlink::{
    Link, MAIN_TABLE, Netlink, NetlinkError, Nexthop, NexthopId, Route, RouteKey, RouteType,
    TunnelAssociation, TunnelPolicyKey, protocol,
};
use flannel_reconcile::networks;
use flannel_traffic::removal::{self, Leftover};

use crate::{scope::CleanupScope, sysctls::SysctlStep};

const SIDES: [TcAttachType; 2] = [TcAttachType::Ingress, TcAttachType::Egress];

/// One thing to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// One of our tc filters.
    Filter {
        ifindex: u32,
        ifname: String,
        side: TcAttachType,
        filter: FilterId,
    },
    /// A clsact qdisc that the agent added and no other program uses.
    Qdisc { ifindex: u32, ifname: String },
    /// A directory of pins; with the links in it, programs come off their devices.
    Pins(PathBuf),
    /// The bpf filesystem that the agent, or `prepare`, mounted only for its pins.
    BpfFilesystem(PathBuf),
    /// Masquerade and forward rules in one engine.
    Rules(Leftover),
    /// A direct route, the blackhole route, or the unreachable route.
    Route { key: RouteKey, route: Route },
    /// A nexthop object, by which only direct routes led.
    Nexthop(NexthopId),
    /// A process of a backend.
    Process(BackendProcess),
    /// An association for such a policy. Its process removes it as it ends; a killed one did not.
    Association(TunnelAssociation),
    /// A policy that demands an IPsec tunnel.
    Policy(TunnelPolicyKey),
    /// A tunnel device, and all on it.
    Device { index: u32, name: String },
    /// The work of a command of the backend extension for a peer.
    Command(Box<Recorded>),
    /// A route in the cloud.
    CloudRoute(flannel_cloud::CloudRecord),
    /// A sysctl the agent changed.
    Sysctl(SysctlStep),
    /// A file.
    File(PathBuf),
    /// A directory, if it is empty by then.
    Directory(PathBuf),
}

/// Everything there is to remove, but for what [`super::sysctls`] plans.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<PlanStep>,
    /// Files, when all else is done.
    pub(super) files: Vec<PlanStep>,
}

impl Plan {
    /// Reads what there is. Changes nothing.
    pub(super) async fn make(scope: &CleanupScope, netlink: &Netlink) -> anyhow::Result<Self> {
        let links = netlink.links().await?;
        let mut steps = attachments(&links, &scope.state_dir)?;
        steps.extend(pins(scope)?);
        let (recorded, directory) = flannel_extension::recorded(&scope.state_dir)?;
        // Their record goes with the process.
        let policies = policies(scope, netlink).await?;
        let processes = BackendProcess::recorded(&scope.state_dir);
        steps.extend(processes.into_iter().map(PlanStep::Process));
        if scope.keep_network {
            // Stock flannel does not know this route and would never remove it.
            let routes = routes(netlink).await?.into_iter();
            steps.extend(routes.filter(
                |step| matches!(step, PlanStep::Route { route, .. } if is_unreachable(route)),
            ));
        } else {
            steps.extend(
                recorded
                    .into_iter()
                    .map(|peer| PlanStep::Command(Box::new(peer))),
            );
            steps.extend(
                flannel_cloud::recorded(&scope.state_dir)?
                    .into_iter()
                    .map(PlanStep::CloudRoute),
            );
            steps.extend(policies);
            steps.extend(network(netlink, &links).await?);
        }
        Ok(Self {
            steps,
            files: files(scope, directory),
        })
    }
}

/// Returns our filters on any device, and the qdiscs that we added for them. TCX links go with
/// their pins.
fn attachments(links: &[Link], state_dir: &Path) -> io::Result<Vec<PlanStep>> {
    let ledger = Ledger::new(state_dir).devices();
    let mut steps = Vec::new();
    for link in links {
        let mut foreign = false;
        for side in SIDES {
            for filter in filters::list(link.index, side)? {
                if filter.priority == PRIORITY && is_our_handle(filter.handle) {
                    steps.push(PlanStep::Filter {
                        ifindex: link.index,
                        ifname: link.name.clone(),
                        side,
                        filter,
                    });
                } else {
                    foreign = true;
                }
            }
        }
        if ledger.contains(&link.index) && !foreign {
            steps.push(PlanStep::Qdisc {
                ifindex: link.index,
                ifname: link.name.clone(),
            });
        }
    }
    Ok(steps)
}

/// The directories of all schemas below the pin root, and the root. A bpf filesystem on the root
/// goes too, unless it has pins of others.
fn pins(scope: &CleanupScope) -> io::Result<Vec<PlanStep>> {
    let root = scope.pins.root();
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let (mut steps, mut foreign) = (Vec::new(), false);
    for entry in entries {
        let path = entry?.path();
        if schema_of(&path).is_some() {
            steps.push(PlanStep::Pins(path));
        } else {
            foreign |= !bpffs::is_of_the_kernel(&path);
        }
    }
    if !foreign && bpffs::is_own_mount(root) {
        steps.push(PlanStep::BpfFilesystem(root.to_owned()));
    }
    if !steps.is_empty() {
        steps.push(PlanStep::Directory(root.to_owned()));
    }
    Ok(steps)
}

/// Finds everything that carries packets without the programs: rules, routes, nexthop objects and
/// tunnel devices.
async fn network(netlink: &Netlink, links: &[Link]) -> Result<Vec<PlanStep>, NetlinkError> {
    let mut steps: Vec<PlanStep> = removal::find()
        .await
        .into_iter()
        .map(PlanStep::Rules)
        .collect();
    steps.extend(routes(netlink).await?);
    steps.extend(nexthops(netlink, links).await?);
    steps.extend(links.iter().filter(|link| is_tunnel(link)).map(device));
    Ok(steps)
}

async fn policies(scope: &CleanupScope, netlink: &Netlink) -> Result<Vec<PlanStep>, NetlinkError> {
    let (associations, policies) = recorded_policies(netlink, &scope.state_dir).await?;
    let associations = associations.into_iter().map(PlanStep::Association);
    Ok(associations
        .chain(policies.into_iter().map(PlanStep::Policy))
        .collect())
}

/// Routes of our protocol in the main table. Those on a tunnel device go with it.
async fn routes(netlink: &Netlink) -> Result<Vec<PlanStep>, NetlinkError> {
    let ours = |(key, route): &(RouteKey, Route)| {
        key.table == MAIN_TABLE && route.protocol == protocol::FLANNEL
    };
    let mut steps = Vec::new();
    for family in Family::BOTH {
        let routes = netlink.routes(family).await?;
        steps.extend(
            routes
                .into_iter()
                .filter(ours)
                .map(|(key, route)| PlanStep::Route { key, route }),
        );
    }
    Ok(steps)
}

fn is_unreachable(route: &Route) -> bool {
    route.kind == RouteType::Unreachable
}

/// Nexthop objects of our protocol. Those on a tunnel device go with it.
async fn nexthops(netlink: &Netlink, links: &[Link]) -> Result<Vec<PlanStep>, NetlinkError> {
    let on_tunnel = |nexthop: &Nexthop| {
        links
            .iter()
            .any(|link| is_tunnel(link) && nexthop.oif == Some(link.index))
    };
    let ours = |(_, nexthop): &(NexthopId, Nexthop)| {
        nexthop.protocol == protocol::FLANNEL && !on_tunnel(nexthop)
    };
    let all = netlink.nexthops().await?.unwrap_or_default();
    Ok(all
        .into_iter()
        .filter(ours)
        .map(|(id, _)| PlanStep::Nexthop(id))
        .collect())
}

fn device(link: &Link) -> PlanStep {
    PlanStep::Device {
        index: link.index,
        name: link.name.clone(),
    }
}

/// Returns the files that exist in the state directory and the directory itself, with that of the
/// records of commands, and subnet.env if asked for.
fn files(scope: &CleanupScope, records: Option<PathBuf>) -> Vec<PlanStep> {
    let dir = &scope.state_dir;
    let ledger = Ledger::new(dir).path().to_owned();
    let networks = networks::path(dir);
    let lease = state_dir::lease_record(dir);
    let state = [
        state_dir::status_socket(dir),
        ledger,
        networks,
        lease,
        state_dir::lock_in_making(dir),
        state_dir::lock(dir),
    ];
    let secrets = (!scope.keep_network).then(|| secret_files(dir));
    let asked = scope.subnet_file.iter().cloned();
    let mut steps: Vec<_> = asked
        .chain(state)
        .chain(secrets.into_iter().flatten())
        .filter(|path| path.exists())
        .map(PlanStep::File)
        .collect();
    let directories = records
        .into_iter()
        .chain(Some(dir.clone()).filter(|dir| dir.exists()));
    steps.extend(directories.map(PlanStep::Directory));
    steps
}

impl PlanStep {
    /// The outcome of a step that did not fail, in words.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Directory(path) if path.exists() => "kept, it is not empty or a mount point",
            _ => "done",
        }
    }

    /// Does what takes no netlink handle.
    pub(super) fn execute_locally(&self) -> io::Result<()> {
        match self {
            Self::Filter {
                ifindex,
                side,
                filter,
                ..
            } => filters::delete(*ifindex, *side, *filter),
            Self::Qdisc { ifindex, .. } => filters::delete_clsact(*ifindex),
            Self::Pins(path) => fs::remove_dir_all(path),
            Self::BpfFilesystem(path) => bpffs::unmount(path),
            Self::Sysctl(step) => step.execute(),
            Self::File(path) => fs::remove_file(path),
            Self::Directory(path) => match fs::remove_dir(path) {
                // In use by others, or the mount point of the bpffs.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy
                    ) =>
                {
                    Ok(())
                }
                other => other,
            },
            Self::Process(process) => process.remove(),
            Self::Rules(_)
            | Self::Route { .. }
            | Self::Nexthop(_)
            | Self::Association(_)
            | Self::Policy(_)
            | Self::Device { .. }
            | Self::Command(_)
            | Self::CloudRoute(_) => Ok(()),
        }
    }
}

impl fmt::Display for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter {
                ifname,
                side,
                filter,
                ..
            } => {
                let side = if *side == TcAttachType::Ingress {
                    "ingress"
                } else {
                    "egress"
                };
                write!(
                    f,
                    "remove the {side} filter {:#x} from {ifname}",
                    filter.handle
                )
            }
            Self::Qdisc { ifname, .. } => write!(f, "remove the clsact qdisc from {ifname}"),
            Self::Pins(path) => write!(f, "remove the pins below {}", path.display()),
            Self::BpfFilesystem(path) => {
                write!(f, "unmount the bpf filesystem on {}", path.display())
            }
            Self::Rules(leftover) => write!(f, "remove {leftover}"),
            Self::Route { key, route } => match (route.gateway, route.kind) {
                (Some(gateway), _) => write!(f, "remove the route {} via {gateway}", key.dst),
                (None, RouteType::BlackHole) => write!(f, "remove the blackhole route {}", key.dst),
                (None, RouteType::Unreachable) => {
                    write!(f, "remove the unreachable route {}", key.dst)
                }
                (None, _) => write!(f, "remove the route {}", key.dst),
            },
            Self::Nexthop(id) => write!(f, "remove {id}"),
            Self::Process(process) => process.fmt(f),
            Self::Association(association) => write!(f, "remove the {association}"),
            Self::Policy(key) => write!(f, "remove the {key}"),
            Self::Device { name, .. } => write!(f, "remove the device {name} and all on it"),
            Self::Command(peer) if peer.has_command() => {
                write!(
                    f,
                    "run SubnetRemoveCommand for {} and remove {}",
                    peer.subnets(),
                    peer.path.display()
                )
            }
            Self::Command(peer) => write!(f, "remove {}", peer.path.display()),
            Self::CloudRoute(route) => write!(f, "remove {route}"),
            Self::Sysctl(step) => step.fmt(f),
            Self::File(path) => write!(f, "remove {}", path.display()),
            Self::Directory(path) => write!(f, "remove {} if it is empty", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_stays_is_not_reported_as_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("flannel");
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("subnet.env"), "").expect("a file");
        let step = PlanStep::Directory(dir.clone());
        step.execute_locally().expect("no failure");
        assert_eq!(step.outcome(), "kept, it is not empty or a mount point");
        fs::remove_file(dir.join("subnet.env")).expect("removed");
        step.execute_locally().expect("no failure");
        assert_eq!((step.outcome(), dir.exists()), ("done", false));
    }
}
