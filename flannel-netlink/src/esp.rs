//! ESP in the kernel: a test with an association that is made and removed at once.

use std::net::Ipv4Addr;

use netlink_packet_xfrm::{
    AF_INET, Address, Alg, Id, LifetimeConfig, UserSaId, UserSaInfo, XFRM_ALG_NAME_LEN, XFRM_MODE_TUNNEL, XfrmAttrs,
    XfrmMessage,
    state::{DelGetMessage, ModifyMessage},
};

use super::{
    Netlink, NetlinkError,
    error::{Fault, Verb},
};

/// `IPPROTO_ESP`.
const ESP: u8 = 50;
/// Of the association, whose ends are loopback.
const SPI: u32 = 0x00f1_a22e;
/// It encrypts nothing and has no key.
const NULL_CIPHER: &[u8] = b"cipher_null";
const OBJECT: &str = "an ESP association";

impl Netlink {
    /// Tests that the kernel has ESP for IPv4, which loads its module. The error is the kernel's.
    pub async fn check_esp(&self) -> Result<(), NetlinkError> {
        let xfrm = self.xfrm.as_ref().ok_or_else(|| Fault::NoXfrm.on(Verb::Create, OBJECT))?;
        let made = xfrm.command(XfrmMessage::AddSa(association()), 0).await;
        let removed = xfrm.command(XfrmMessage::DeleteSa(id()), 0).await;
        match made.map_err(|fault| fault.on(Verb::Create, OBJECT)) {
            // Of a test that was interrupted.
            Err(error) if error.is_exists() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => removed.map_err(|fault| fault.on(Verb::Delete, OBJECT)),
        }
    }
}

fn loopback() -> Address {
    Address::from_ipv4(&Ipv4Addr::LOCALHOST)
}

fn association() -> ModifyMessage {
    let lifetime_cfg = LifetimeConfig { hard_add_expires_seconds: 1, ..LifetimeConfig::default() };
    let info = UserSaInfo {
        id: Id { daddr: loopback(), spi: SPI, proto: ESP },
        saddr: loopback(),
        lifetime_cfg,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        ..UserSaInfo::default()
    };
    let mut alg_name = [0; XFRM_ALG_NAME_LEN];
    alg_name[..NULL_CIPHER.len()].copy_from_slice(NULL_CIPHER);
    let null = Alg { alg_name, alg_key_len: 0, alg_key: Vec::new() };
    ModifyMessage { user_sa_info: info, nlas: vec![XfrmAttrs::EncryptionAlg(null)] }
}

fn id() -> DelGetMessage {
    let id = UserSaId { daddr: loopback(), spi: SPI, family: AF_INET, proto: ESP };
    DelGetMessage { user_sa_id: id, nlas: vec![XfrmAttrs::SrcAddr(loopback())] }
}
