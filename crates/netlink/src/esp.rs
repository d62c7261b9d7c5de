//! ESP in the kernel: its associations, and a test with one that is made and removed at once.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use netlink_packet_xfrm::{
    AF_INET, AF_INET6, Address, Alg, Id, LifetimeConfig, UserSaId, UserSaInfo, XFRM_ALG_NAME_LEN,
    XFRM_MODE_TUNNEL, XfrmAttrs, XfrmMessage,
    state::{DelGetMessage, GetDumpMessage, ModifyMessage},
};

use super::{
    Netlink, NetlinkError,
    error::Verb,
    transport::Dump,
    tunnel_policy::{ESP, TunnelPolicy, ip},
};

/// The association of the test.
const TESTED: TunnelAssociation = TunnelAssociation {
    src: IpAddr::V4(Ipv4Addr::LOCALHOST),
    dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    spi: 0x00f1_a22e,
    reqid: 0,
};
/// Algorithms that every kernel with IPsec has, and lengths of their keys in bytes.
const CIPHER: (&[u8], u32) = (b"cbc(aes)", 16);
const DIGEST: (&[u8], u32) = (b"hmac(sha256)", 32);
const OBJECT: &str = "an ESP association";

/// One direction of an ESP tunnel between two hosts: the keys are the kernel's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelAssociation {
    /// Source address of outer packets.
    pub src: IpAddr,
    /// Their destination address.
    pub dst: IpAddr,
    /// The number in the packets.
    pub spi: u32,
    /// The number that it has in common with policies.
    pub reqid: u32,
}

impl TunnelAssociation {
    /// Returns true if the policy demands this tunnel.
    pub fn serves(&self, policy: &TunnelPolicy) -> bool {
        (self.src, self.dst, self.reqid) == (policy.src, policy.dst, policy.reqid)
    }
}

impl fmt::Display for TunnelAssociation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPsec association {:#010x} from {} to {}",
            self.spi, self.src, self.dst
        )
    }
}

impl Netlink {
    /// Returns the associations of ESP in tunnel mode; empty on a kernel without XFRM.
    pub async fn tunnel_associations(&self) -> Result<Vec<TunnelAssociation>, NetlinkError> {
        let Some(xfrm) = &self.xfrm else {
            return Ok(Vec::new());
        };
        let entries = xfrm
            .dump(XfrmMessage::GetDumpSa(GetDumpMessage::default()))
            .await
            .map(Dump::readable);
        let entries = entries.map_err(|fault| fault.on(Verb::Read, "the IPsec associations"))?;
        Ok(entries.iter().filter_map(association_of).collect())
    }

    /// Removes an association.
    pub async fn del_tunnel_association(
        &self,
        association: &TunnelAssociation,
    ) -> Result<(), NetlinkError> {
        let xfrm = self.xfrm_or(Verb::Delete, association)?;
        let removed = xfrm
            .command(XfrmMessage::DeleteSa(id_of(association)), 0)
            .await;
        removed.map_err(|fault| fault.on(Verb::Delete, association))
    }

    /// Tests that the kernel has ESP for IPv4, which loads its module. The error is the kernel's.
    /// A refusal for another reason, such as an algorithm that this kernel lacks, shows nothing.
    pub async fn check_esp(&self) -> Result<(), NetlinkError> {
        let xfrm = self.xfrm_or(Verb::Create, OBJECT)?;
        let made = xfrm.command(XfrmMessage::AddSa(association()), 0).await;
        let removed = xfrm.command(XfrmMessage::DeleteSa(id_of(&TESTED)), 0).await;
        match made.map_err(|fault| fault.on(Verb::Create, OBJECT)) {
            Err(error) if error.is_unsupported() => Err(error),
            Err(_) => Ok(()),
            Ok(()) => removed.map_err(|fault| fault.on(Verb::Delete, OBJECT)),
        }
    }
}

fn association() -> ModifyMessage {
    let lifetime_cfg = LifetimeConfig {
        hard_add_expires_seconds: 1,
        ..LifetimeConfig::default()
    };
    let info = UserSaInfo {
        id: Id {
            daddr: Address::from_ip(&TESTED.dst),
            spi: TESTED.spi,
            proto: ESP,
        },
        saddr: Address::from_ip(&TESTED.src),
        lifetime_cfg,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        ..UserSaInfo::default()
    };
    let nlas = vec![
        XfrmAttrs::EncryptionAlg(algorithm(CIPHER)),
        XfrmAttrs::AuthenticationAlg(algorithm(DIGEST)),
    ];
    ModifyMessage {
        user_sa_info: info,
        nlas,
    }
}

/// An algorithm with a key of zeros: no packet belongs to the association.
fn algorithm((name, key_len): (&[u8], u32)) -> Alg {
    let mut alg_name = [0; XFRM_ALG_NAME_LEN];
    alg_name[..name.len()].copy_from_slice(name);
    Alg {
        alg_name,
        alg_key_len: key_len * 8,
        alg_key: vec![0; key_len as usize],
    }
}

fn id_of(association: &TunnelAssociation) -> DelGetMessage {
    let family = if association.dst.is_ipv4() {
        AF_INET
    } else {
        AF_INET6
    };
    let id = UserSaId {
        daddr: Address::from_ip(&association.dst),
        spi: association.spi,
        family,
        proto: ESP,
    };
    DelGetMessage {
        user_sa_id: id,
        nlas: vec![XfrmAttrs::SrcAddr(Address::from_ip(&association.src))],
    }
}

/// `None` for one of another form, and for a placeholder without a number, which the kernel makes
/// for a packet that waits.
fn association_of(message: &XfrmMessage) -> Option<TunnelAssociation> {
    let XfrmMessage::AddSa(ModifyMessage {
        user_sa_info: info, ..
    }) = message
    else {
        return None;
    };
    if info.id.proto != ESP || info.mode != XFRM_MODE_TUNNEL || info.id.spi == 0 {
        return None;
    }
    let (src, dst) = (
        ip(info.saddr, info.family)?,
        ip(info.id.daddr, info.family)?,
    );
    Some(TunnelAssociation {
        src,
        dst,
        spi: info.id.spi,
        reqid: info.reqid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_is_read_as_it_is_written() {
        let message = association();
        assert_eq!(
            association_of(&XfrmMessage::AddSa(message.clone())),
            Some(TESTED)
        );
        let changed = |change: &dyn Fn(&mut UserSaInfo)| {
            let mut message = message.clone();
            change(&mut message.user_sa_info);
            association_of(&XfrmMessage::AddSa(message))
        };
        assert_eq!(changed(&|info| info.mode = 0), None, "transport mode");
        assert_eq!(changed(&|info| info.id.spi = 0), None, "a placeholder");
        assert_eq!(changed(&|info| info.id.proto = 51), None, "AH");
        assert_eq!(
            TESTED.to_string(),
            "IPsec association 0x00f1a22e from 127.0.0.1 to 127.0.0.1"
        );
    }

    #[test]
    fn it_serves_the_policy_with_its_ends_and_number() {
        let policy = TunnelPolicy {
            src: TESTED.src,
            dst: TESTED.dst,
            reqid: TESTED.reqid,
            priority: 0,
        };
        assert!(TESTED.serves(&policy));
        assert!(!TESTED.serves(&TunnelPolicy {
            reqid: 11,
            ..policy
        }));
        assert!(!TESTED.serves(&TunnelPolicy {
            dst: "127.0.0.2".parse().expect("an address"),
            ..policy
        }));
    }
}
