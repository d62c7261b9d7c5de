//! Settings of this node at the start: those of the external interface and the MTU, which the flags
//! and the network configuration give a node without them.

use flannel_backend_api::usable_mtu;
use flannel_iface::{ExternalInterface, IfaceError, IfaceOptions};
use flannel_netlink::Netlink;
use flannel_status::NodeSettingStatus;
use flannel_store::{Hints, SettingValue, config::NetworkConfig};

use crate::agent::{external::External, node_settings::NodeOverrides};

/// Chooses the external interface: by the setting of this node where it leads to one that the
/// backend can use, else by the flags.
pub(in crate::agent) async fn choose_external(
    netlink: &Netlink,
    options: &IfaceOptions,
    config: &NetworkConfig,
    hints: &Hints,
    node: &mut NodeOverrides,
) -> Result<External, IfaceError> {
    let (families, pods): (Vec<_>, Vec<_>) =
        (config.families().collect(), config.networks().collect());
    if let Some(names) = node.settings().iface() {
        let own = IfaceOptions {
            iface: names.to_vec(),
            patterns: Vec::new(),
            can_reach: None,
            public_ip: options.public_ip,
            public_ipv6: options.public_ipv6,
        };
        let chosen = External::choose(netlink, &own, families.clone(), pods.clone(), hints)
            .await
            .map_err(anyhow::Error::from);
        match chosen.and_then(|external| usable(external, config)) {
            Ok(external) => return Ok(external),
            Err(error) => node.refuse(
                |value| matches!(value, SettingValue::Iface(_)),
                &format!("{error:#}"),
            ),
        }
    }
    External::choose(netlink, options, families, pods, hints).await
}

/// Checks that the backend can use an interface.
fn usable(external: External, config: &NetworkConfig) -> anyhow::Result<External> {
    let backend = flannel_backends::of(&config.backend);
    let ExternalInterface { ends, mtu, .. } = external.chosen();
    for (family, end) in ends {
        backend.accept(end)?;
        usable_mtu(backend.as_ref(), *family, *mtu)?;
    }
    Ok(external)
}

/// The configuration with the MTU of this node, if it has one that it can use.
pub(in crate::agent) fn with_node_mtu(
    config: NetworkConfig,
    node: &mut NodeOverrides,
    external: u32,
) -> NetworkConfig {
    let Some(mtu) = node.settings().mtu() else {
        return config;
    };
    config.with_mtu(mtu, external).unwrap_or_else(|error| {
        node.refuse(
            |value| matches!(value, SettingValue::Mtu(_)),
            &error.to_string(),
        );
        config
    })
}

/// Logs the settings that apply, and the reasons why others do not.
pub(in crate::agent) fn log_settings(states: Vec<NodeSettingStatus>) {
    for NodeSettingStatus {
        annotation,
        value,
        reason,
        ..
    } in states
    {
        if let Some(reason) = reason {
            tracing::warn!("annotation {annotation}={value}: {reason}");
        } else {
            tracing::info!(annotation, value, "setting of this node");
        }
    }
}
