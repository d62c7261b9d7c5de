//! Values that would not come up end the rendering, by name and with what to write instead.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use super::{helm, text_of};

const REFUSED: &[(&str, &str)] = &[
    (
        "flannel: {backend: ipsec, psk: abc}",
        "needs a secret of at least 96 characters in flannel.psk",
    ),
    (
        "flannel: {backend: aws}",
        "which is not built: write one of vxlan, host-gw, wireguard, ipsec, ipip, udp, extension, \
         aws-vpc",
    ),
    (
        "flannel: {backendOptions: {Type: udp}}",
        "flannel.backendOptions has the key Type: write it as flannel.backend",
    ),
    (
        "flannel: {psk: abc}",
        "flannel.psk belongs to the backends wireguard and ipsec",
    ),
    (
        "flannel: {backendPortv6: 51821}",
        "flannel.backendPortv6 belongs to",
    ),
    (
        "flannel: {tunnelMode: auto}",
        "flannel.tunnelMode belongs to",
    ),
    (
        "flannel: {keepaliveInterval: 25}",
        "flannel.keepaliveInterval belongs to",
    ),
    (
        "flannel: {cniConf: '{\"name\": \"cbr0\",}'}",
        "flannel.cniConf is no JSON object",
    ),
    (
        "flannel: {metrics: {port: 0, podMonitor: {enabled: true}}}",
        "flannel.metrics.podMonitor is enabled",
    ),
    (
        "flannel: {healthz: {port: 8082}}",
        "flannel.metrics.port and flannel.healthz.port are both 8082",
    ),
    (
        "flannel: {k8sServiceHost: 192.0.2.10}",
        "flannel.k8sServiceHost and flannel.k8sServicePort go together",
    ),
    (
        "flannel: {k8sServicePort: 6443}",
        "flannel.k8sServiceHost and flannel.k8sServicePort go together",
    ),
    ("podCidr: ''", "podCidr and podCidrv6 are both empty"),
    (
        "flannel: {image: {repository: registry.example/flannel-io/flannel}}",
        "stock flannel's image",
    ),
    (
        "flannel: {image: {repository: flannel/flannel}}",
        "stock flannel's image",
    ),
    (
        "flannel: {image: {repository: docker.io/flannel/flannel}}",
        "stock flannel's image",
    ),
    (
        "flannel: {image: {repository: rancher/mirrored-flannel-flannel}}",
        "stock flannel's image",
    ),
    (
        "flannel: {image: {repository: registry.example/rancher/hardened-flannel}}",
        "stock flannel's image",
    ),
    (
        "flannel: {args: [--iface=eth1]}",
        "flannel.args replaces all flags, and names no store",
    ),
    // By the schema of the values.
    ("flannel: {backEnd: vxlan}", "backEnd"),
    ("flannel: {vni: 16777216}", "vni"),
    ("flannel: {datapath: turbo}", "datapath"),
    ("flannel: {flowTableSize: 10}", "flowTableSize"),
    ("podCidr: 10.244.0.0", "podCidr"),
    ("podCidr: 10.244.0.0/99", "podCidr"),
    ("podCidr: 10.244.0.256/16", "podCidr"),
    ("podCidr: 'fd00::/48'", "podCidr"),
    ("podCidrv6: 10.244.0.0/16", "podCidrv6"),
    ("podCidrv6: 'fd00::/129'", "podCidrv6"),
    (
        "flannel: {metrics: {prometheusRule: {runbookBase: no-slash}}}",
        "runbookBase",
    ),
    ("flannel: {healthz: {ip: localhost}}", "ip"),
];

#[test]
fn what_is_not_built_is_refused_by_name() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (values, message) in REFUSED {
        if !refused(directory.path(), values, message)? {
            break;
        }
    }
    Ok(())
}

/// Mirrors of our image, and flags of others.
const TAKEN: [&str; 4] = [
    "flannel: {image: {repository: registry.example/flannel/flannel}}",
    "flannel: {image: {repository: registry.example/mirror/flannel-agent}}",
    "flannel: {args: [--etcd-endpoints=http://192.0.2.1:2379]}",
    "flannel: {extraArgs: [--iface=eth1]}",
];

#[test]
fn what_is_built_is_not_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("values.yaml");
    for values in TAKEN {
        fs::write(&file, values)?;
        let Some(output) = helm::template(file.clone().into())? else {
            return Ok(());
        };
        ensure!(output.status.success(), "{values}: {}", text_of(&output));
    }
    Ok(())
}

/// Fails unless Helm refuses the values with this message. Returns false if Helm is not installed.
fn refused(directory: &Path, values: &str, message: &str) -> Result<bool> {
    let file = directory.join("values.yaml");
    fs::write(&file, values)?;
    let Some(output) = helm::template(file.into())? else {
        return Ok(false);
    };
    ensure!(!output.status.success(), "{values} is rendered");
    let text = text_of(&output);
    ensure!(text.contains(message), "{values}: {text}");
    Ok(true)
}
