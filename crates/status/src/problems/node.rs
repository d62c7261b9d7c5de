//! Problems of the node itself.

use flannel_host::words::count;

use super::{Problem, ProblemCode};
use crate::{
    Claim, CloudStatus, Dirty, ExtensionStatus, IpsecStatus, ListenerStatus, Status, UdpStatus,
};

/// The problems in the document, without those of peers.
pub(super) fn problems(status: &Status) -> impl Iterator<Item = Problem> {
    let lease = status
        .lease_problem
        .iter()
        .map(|text| Problem::new(ProblemCode::Lease, format!("lease: {text}")));
    lease
        .chain(error(status))
        .chain(store(status))
        .chain(sysctls(status))
        .chain(status.udp.iter().filter_map(udp))
        .chain(status.ipsec.iter().flat_map(ipsec))
        .chain(traffic(status))
        .chain(forwarding(status))
        .chain(addresses(status))
        .chain(settings(status))
        .chain(leases(status))
        .chain(entries(status))
        .chain(status.extension.iter().flat_map(commands))
        .chain(status.extension.iter().flat_map(routes))
        .chain(status.cloud.iter().flat_map(cloud))
        .chain(mode(status))
        .chain(status.listeners.iter().filter_map(listener))
}

fn error(status: &Status) -> Option<Problem> {
    let error = status.error.as_ref()?;
    // A node without a lease has not begun to reconcile.
    Some(match (status.pid, &status.lease) {
        (Some(_), None) => Problem::new(
            ProblemCode::StartWaits,
            format!("{}: {error}", status.stage),
        ),
        _ => Problem::new(ProblemCode::Reconcile, format!("cannot reconcile: {error}")),
    })
}

fn store(status: &Status) -> Option<Problem> {
    let store = status.store.as_ref()?;
    let reason = store.reason.as_ref()?;
    Some(
        Problem::new(ProblemCode::Store, format!("store out of reach: {reason}"))
            .since(store.since),
    )
}

fn sysctls(status: &Status) -> impl Iterator<Item = Problem> {
    let problem = |text: &String| Problem::new(ProblemCode::HostSysctl, text);
    status
        .sysctl_problems
        .iter()
        .map(move |found| problem(&found.text).about(&found.sysctl))
}

fn udp(status: &UdpStatus) -> Option<Problem> {
    let reason = status.error.as_deref().unwrap_or("it does not answer");
    let problem = || {
        Problem::new(
            ProblemCode::UdpProcess,
            format!("no tunnel process carries packets: {reason}"),
        )
    };
    status.pid.is_none().then(problem)
}

fn ipsec(status: &IpsecStatus) -> impl Iterator<Item = Problem> {
    let process = status.error.iter().map(|error| {
        Problem::new(
            ProblemCode::IpsecKeys,
            format!("no keys are agreed on with peers: {error}"),
        )
    });
    let kernel = status.kernel.iter().map(|reason| {
        Problem::new(
            ProblemCode::IpsecKernel,
            format!("the kernel makes no IPsec associations: {reason}"),
        )
    });
    process.chain(kernel)
}

fn traffic(status: &Status) -> Option<Problem> {
    let error = status.traffic.as_ref()?.error.as_ref()?;
    Some(Problem::new(
        ProblemCode::TrafficRules,
        format!("traffic rules are not as asked for: {error}"),
    ))
}

fn addresses(status: &Status) -> impl Iterator<Item = Problem> {
    let inside = status
        .addresses_in_pods
        .iter()
        .map(|text| Problem::new(ProblemCode::AddressInPods, text).about(text));
    let lost = status
        .lost_subnets
        .iter()
        .map(|text| Problem::new(ProblemCode::LostSubnet, text).about(text));
    inside.chain(lost)
}

fn forwarding(status: &Status) -> impl Iterator<Item = Problem> {
    status.closed_forward.iter().map(|chain| {
        let text = format!(
            "forwarded packets are dropped in {chain}: no pod may reach another \
            node"
        );
        let remedy = "remove that rule, let one in front of it accept packets from and to the pod \
            network, or keep                       --iptables-forward-rules on";
        Problem::new(ProblemCode::ForwardDropped, text)
            .about(chain)
            .with_remedy(remedy)
    })
}

fn settings(status: &Status) -> impl Iterator<Item = Problem> {
    status
        .node_settings
        .iter()
        .filter(|setting| !setting.in_force)
        .map(|setting| {
            let reason = setting.reason.as_deref().unwrap_or("not in force");
            let text = format!(
                "annotation {}={}: {reason}",
                setting.annotation, setting.value
            );
            let code = if setting.waits {
                ProblemCode::SettingWaits
            } else {
                ProblemCode::Setting
            };
            Problem::new(code, text).about(&setting.annotation)
        })
}

fn leases(status: &Status) -> impl Iterator<Item = Problem> {
    let listed = status.rejected.iter().map(|lease| {
        let code = match lease.claim {
            Some(Claim::Mac) => ProblemCode::DuplicateMac,
            Some(Claim::Key) => ProblemCode::DuplicateKey,
            Some(Claim::Subnet) => ProblemCode::DuplicateSubnet,
            None => ProblemCode::RefusedLease,
        };
        Problem::new(code, format!("refused lease: {}", lease.reason)).about(&lease.key)
    });
    let listed_number = status.rejected.len();
    listed.chain(Problem::more(
        ProblemCode::RefusedLease,
        status.rejected_total,
        listed_number,
        "refused leases",
    ))
}

fn entries(status: &Status) -> impl Iterator<Item = Problem> {
    let code = ProblemCode::RefusedEntry;
    let listed = status.dirty.iter().map(
        move |Dirty {
                  object,
                  error,
                  attempts,
              }| {
            let tries = count(*attempts, "try", "tries");
            Problem::new(
                code,
                format!("refused by the kernel: {object} ({tries}): {error}"),
            )
            .about(object)
        },
    );
    listed.chain(Problem::more(
        code,
        status.dirty_total,
        status.dirty.len(),
        "entries refused by the kernel",
    ))
}

fn commands(status: &ExtensionStatus) -> impl Iterator<Item = Problem> {
    let code = ProblemCode::Command;
    let listed = status.failures.iter().map(move |failing| {
        let tries = count(failing.attempts, "try", "tries");
        let text = format!(
            "commands for peer {} ({tries}): {}",
            failing.peer, failing.error
        );
        Problem::new(code, text).about(&failing.peer)
    });
    listed.chain(Problem::more(
        code,
        status.failing,
        status.failures.len(),
        "peers with a command that failed",
    ))
}

/// Routing rules, policies or a router may carry packets that the default route takes.
fn routes(status: &ExtensionStatus) -> impl Iterator<Item = Problem> {
    let code = ProblemCode::UnroutedPeer;
    let listed = status.unrouted_peers.iter().map(move |peer| {
        let subnet = &peer.subnet;
        let found = match &peer.default_route {
            Some(route) => format!("packets to pods in {subnet} follow the default route {route}"),
            None => format!("the kernel has no route for packets to pods in {subnet}"),
        };
        let text = format!(
            "{found}, and no answer shows that they arrive: what SubnetAddCommand made may be gone"
        );
        let remedy =
            "make that route again, or set Backend.SubnetAddInterval, which repeats the command";
        Problem::new(code, text).about(subnet).with_remedy(remedy)
    });
    let listed_number = status.unrouted_peers.len();
    listed.chain(Problem::more(
        code,
        status.unrouted,
        listed_number,
        "peers without a route of commands",
    ))
}

fn cloud(status: &CloudStatus) -> impl Iterator<Item = Problem> {
    let text = match &status.error {
        Some(error) => {
            let tries = count(status.attempts, "try", "tries");
            Some(format!(
                "routes of the cloud cannot be kept ({tries}): {error}"
            ))
        }
        None if !status.present => {
            Some("the cloud has no route to this node's subnet yet".to_owned())
        }
        None => None,
    };
    let route =
        text.map(|text| Problem::new(ProblemCode::CloudRoute, text).about(&status.destination));
    let check = status.source_check.iter().map(|reason| {
        let text =
            format!("the check of source and destination may drop packets of pods: {reason}");
        Problem::new(ProblemCode::SourceCheck, text)
    });
    route.into_iter().chain(check)
}

/// The programs of an agent that starts, and those of one that has ended, are not known.
fn mode(status: &Status) -> Option<Problem> {
    let mode = &status.mode;
    let is_lower = status.pid.is_some() && status.lease.is_some() && mode.effective != mode.wanted;
    let reason = mode.reason.as_deref().unwrap_or("no reason is known");
    let text = || {
        format!(
            "mode {} instead of {}: {reason}",
            mode.effective, mode.wanted
        )
    };
    is_lower.then(|| Problem::new(ProblemCode::LoweredMode, text()))
}

fn listener(status: &ListenerStatus) -> Option<Problem> {
    let ListenerStatus {
        purpose,
        address,
        error,
        flags,
        ..
    } = status;
    let text = format!(
        "cannot listen on {address} for {purpose}, tried again: {}",
        error.as_ref()?
    );
    let remedy = format!("end the other process, or choose another --{flags}-ip or --{flags}-port");
    Some(
        Problem::new(ProblemCode::Listener, text)
            .about(address)
            .with_remedy(remedy),
    )
}
