//! Services by kube-proxy's rules, in every mode: who reaches them is answered by whom the rules
//! mean, and mode `fast` replays what crosses the tunnel or stays on the node.

mod ipvs;
mod moved;
mod node_address;
mod pods;
mod service_lab;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{fast::Family, service_rules::Backend};

use self::service_lab::ServiceLab;

/// One lab for all: what one check leaves behind is what a cluster's nodes have behind them.
fn services(name: &str, backend: Backend) -> Result<()> {
    let lab = ServiceLab::new(name, backend)?;
    for mode in ["kernel", "encap", "fast"] {
        lab.set_mode(mode)?;
        let replayed = lab.replayed()?;
        for family in Family::ALL {
            let all = || {
                pods::each_backend(&lab, mode, family).context("one Service for each backend")?;
                pods::same_ports(&lab, mode, family)
                    .context("through a Service and directly, from one port")?;
                pods::shared_backends(&lab, mode, family)
                    .context("backends of several Services")?;
                node_address::node_ports(&lab, mode, family).context("ports of the nodes")?;
                node_address::host_port(&lab, mode, family).context("a pod's port of its node")?;
                node_address::outside(&lab, mode, family).context("to the outside")?;
                moved::moved(&lab, mode, family).context("a backend that goes")
            };
            all().with_context(|| format!("mode {mode}, {family:?}"))?;
        }
        ensure!(
            mode == "fast" || lab.replayed()? == replayed,
            "packets were replayed in mode {mode}"
        );
    }
    for pod in [&lab.near, &lab.beside, &lab.far, &lab.other] {
        ensure!(
            pod.checksum_errors()? == 0,
            "wrong checksums at {}",
            pod.name()
        );
    }
    Ok(())
}

#[test]
fn services_of_iptables() -> Result<()> {
    services("svc-ipt", Backend::Iptables)
}

#[test]
fn services_of_nftables() -> Result<()> {
    services("svc-nft", Backend::Nftables)
}
