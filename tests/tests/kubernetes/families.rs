//! Both families in the cluster: the manifest with IPv6 in its network configuration.

use anyhow::{Result, ensure};
use flannel_tests::kubernetes::{Kubernetes, PODS_V6, flannel, items};

use super::{operator::connectivity, paths};

pub(crate) fn both_families_pass_in_every_mode(cluster: &Kubernetes) -> Result<()> {
    let (shipped, network) = (flannel::manifest()?, r#""Network": "10.244.0.0/16","#);
    let both = format!(r#"{network} "EnableIPv6": true, "IPv6Network": "{PODS_V6}","#);
    ensure!(
        shipped.matches(network).count() == 1,
        "no network configuration in the manifest"
    );
    cluster.reinstall(&shipped.replace(network, &both))?;
    let report = connectivity::test(cluster, &["--modes=kernel,encap,fast"], 0)?;
    ensure!(
        !report["left_out"].to_string().contains("IPv6"),
        "{}",
        report["left_out"]
    );
    for run in connectivity::array(&report["runs"]) {
        // Five checks of nine pairs in two families.
        let checks = connectivity::array(&run["checks"]);
        ensure!(
            checks.len() == 90 && checks.iter().all(|check| check["ok"] == true),
            "{run}"
        );
    }
    connectivity::leaves_nothing(cluster)?;
    cluster.reinstall(&shipped)?;
    paths::the_agents_are_in_mode_fast(cluster)?;
    let nodes = cluster.kubectl().get(["nodes"])?;
    for node in items(&nodes) {
        let annotations = node["metadata"]["annotations"].to_string();
        ensure!(
            !annotations.contains("public-ipv6"),
            "the lease still has IPv6: {annotations}"
        );
    }
    Ok(())
}
