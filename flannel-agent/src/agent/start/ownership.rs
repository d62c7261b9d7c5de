//! The claims of this agent at the start: before it changes anything on the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_backend_api::TunnelUnderlay;
use flannel_claims::{Claim, Claims, Identity};
use flannel_common::packet::addr::Mac;
use flannel_datapath::{PinRoot, Successor};
use flannel_host::{error_chain::chain, family::Family};
use flannel_iface::ExternalInterface;
use flannel_options::RunOptions;
use flannel_status::Status;
use flannel_store::config::NetworkConfig;
use ipnet::IpNet;
use tokio::sync::watch;

/// Takes what this agent must be the only owner of. Ends with an error that names the owner if
/// another agent has a part of it, and does not end soon.
pub(in crate::agent) async fn claim(
    options: &RunOptions,
    config: &NetworkConfig,
    publish: &watch::Sender<Status>,
) -> anyhow::Result<Claims> {
    if flannel_backends::of(&config.backend).programs().is_ok()
        && let Err(error) = PinRoot::new(&options.paths.bpf_pin_root).prepare()
    {
        tracing::debug!(error = chain(&error), "no pin root to claim");
    }
    let identity = Identity {
        pid: std::process::id(),
        state_dir: options.paths.state_dir.display().to_string(),
        pin_root: options.paths.bpf_pin_root.display().to_string(),
    };
    let mut claims = vec![Claim::pins(&options.paths.bpf_pin_root)];
    claims.extend(device_names(config).map(Claim::Device));
    // Last: other agents take what is in a claimed network for that of its owner.
    claims.extend(config.networks().map(Claim::Network));
    let taken = Claims::take(&identity, &claims, |taken| {
        tracing::warn!("{taken}. Waiting a moment, in case it is about to end");
        publish
            .send_modify(|status| "waiting for another agent to end".clone_into(&mut status.stage));
    });
    Ok(taken.await?)
}

/// Removes the programs of an agent that ended, and whose pins are elsewhere: they would go on to
/// judge the packets of this one.
pub(in crate::agent) fn retire_programs(
    options: &RunOptions,
    config: &NetworkConfig,
    external: &ExternalInterface,
) {
    let pins = PinRoot::new(&options.paths.bpf_pin_root);
    let tunnels: Vec<u32> = device_names(config)
        .filter_map(|name| nix::net::if_::if_nametoindex(name.as_str()).ok())
        .collect();
    let networks: Vec<IpNet> = config.networks().collect();
    let successor = Successor {
        pins: &pins,
        external: external.index,
        tunnels: &tunnels,
        networks: &networks,
    };
    for root in successor.retire(|root| Claim::pins(root).is_free()) {
        tracing::info!(pin_root = %root.display(), "removed the programs of an agent that ended");
    }
}

/// The names of the tunnel devices that a configuration asks for.
fn device_names(config: &NetworkConfig) -> impl Iterator<Item = String> {
    let backend = flannel_backends::of(&config.backend);
    let name = move |family| {
        let source: IpAddr = match family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Only the name is of interest, which depends on neither MTU nor interface.
        let lower = TunnelUnderlay {
            external: 0,
            mtu: u32::from(u16::MAX),
            source,
            mac: Mac::default(),
        };
        Some(backend.device(&lower)?.name().to_owned())
    };
    let mut names: Vec<String> = config.families().filter_map(name).collect();
    names.dedup();
    names.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &str) -> Vec<String> {
        device_names(&NetworkConfig::parse(config).expect("a configuration")).collect()
    }

    #[test]
    fn each_tunnel_device_is_claimed_once() {
        let both = r#""Network":"10.244.0.0/16","IPv6Network":"fd00:244::/48","EnableIPv6":true"#;
        let of = |backend: &str| names(&format!(r#"{{{both},"Backend":{{{backend}}}}}"#));
        assert_eq!(
            of(r#""Type":"vxlan","VNI":7"#),
            ["flannel.7", "flannel-v6.7"]
        );
        assert_eq!(of(r#""Type":"wireguard","Mode":"auto""#), ["flannel-wg"]);
        assert_eq!(of(r#""Type":"host-gw""#), [""; 0]);
    }
}
