//! `Backend.MTU` of one node in place of the cluster's. Pure.

use super::{
    BackendConfig, BackendProperties, NetworkConfig, UdpConfig, VxlanConfig, WireguardConfig,
    backend, udp, wireguard,
};

/// The reason why a node cannot have this MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeMtu {
    /// The backend makes no packets larger.
    #[error("the backend has no tunnel, and pods get the MTU of the external interface")]
    NoTunnel,
    /// Flannel's backend has no key for it.
    #[error("the backend {backend} takes the MTU of the external interface")]
    NoKey {
        /// Its type.
        backend: &'static str,
    },
    /// Too small for one of the enabled families.
    #[error("expected {least} bytes at least")]
    TooSmall {
        /// The least that is enough.
        least: u16,
    },
    /// The packets would not fit.
    #[error("the external interface has {external} bytes")]
    TooLarge {
        /// The MTU of the external interface.
        external: u32,
    },
}

impl NetworkConfig {
    /// Returns the configuration with this number in place of `Backend.MTU`; 0 takes the MTU of the
    /// external interface, which is `external`.
    pub fn with_mtu(&self, mtu: u16, external: u32) -> Result<Self, BadNodeMtu> {
        let mtu = Some(mtu).filter(|mtu| *mtu != 0);
        let (backend, (least_v4, least_v6)) = match &self.backend {
            BackendConfig::Vxlan(vxlan) => (
                BackendConfig::Vxlan(VxlanConfig { mtu, ..*vxlan }),
                (backend::MIN_MTU, backend::MIN_MTU_V6),
            ),
            BackendConfig::Wireguard(config) => (
                BackendConfig::Wireguard(WireguardConfig { mtu, ..*config }),
                (wireguard::MIN_MTU, wireguard::MIN_MTU_V6),
            ),
            BackendConfig::Udp(config) => (
                BackendConfig::Udp(UdpConfig { mtu, ..*config }),
                (udp::MIN_MTU, udp::MIN_MTU),
            ),
            other => {
                let BackendProperties {
                    type_name,
                    has_tunnel,
                    ..
                } = other.properties();
                return Err(if has_tunnel {
                    BadNodeMtu::NoKey { backend: type_name }
                } else {
                    BadNodeMtu::NoTunnel
                });
            }
        };
        let least = if self.ipv6.is_some() {
            least_v6
        } else {
            least_v4
        };
        match mtu {
            Some(bytes) if bytes < least => Err(BadNodeMtu::TooSmall { least }),
            Some(bytes) if u32::from(bytes) > external => Err(BadNodeMtu::TooLarge { external }),
            _ => Ok(Self {
                backend,
                ..self.clone()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mtu(config: &str, bytes: u16) -> Result<Option<u16>, BadNodeMtu> {
        let config = NetworkConfig::parse(config)
            .expect("a configuration")
            .with_mtu(bytes, 1500)?;
        let BackendConfig::Vxlan(vxlan) = config.backend else {
            panic!("another backend")
        };
        Ok(vxlan.mtu)
    }

    #[test]
    fn a_node_has_an_mtu_that_its_families_and_its_interface_can_use() {
        let v4 = r#"{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","MTU":1400}}"#;
        let dual = r#"{"Network":"10.5.0.0/16","IPv6Network":"fd00::/48","EnableIPv6":true,"Backend":{"Type":"vxlan"}}"#;
        assert_eq!(
            (mtu(v4, 1300), mtu(v4, 1500), mtu(v4, 0)),
            (Ok(Some(1300)), Ok(Some(1500)), Ok(None))
        );
        assert_eq!(mtu(v4, 1501), Err(BadNodeMtu::TooLarge { external: 1500 }));
        assert_eq!(mtu(v4, 117), Err(BadNodeMtu::TooSmall { least: 118 }));
        assert_eq!(mtu(dual, 1349), Err(BadNodeMtu::TooSmall { least: 1350 }));
        let host_gw = r#"{"Network":"10.5.0.0/16","Backend":{"Type":"host-gw"}}"#;
        assert_eq!(mtu(host_gw, 1400), Err(BadNodeMtu::NoTunnel));
    }
}
