//! A veth between this namespace and another one.

use netlink_packet_route::link::{InfoData, InfoVeth, LinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};

/// A veth to be created: one end on a bridge here, the other in the namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethSpec {
    /// Name of the end that stays here, at most 15 bytes.
    pub name: String,
    /// Index of the bridge that this end is put on.
    pub bridge: u32,
    /// Name of the other end.
    pub peer: String,
    /// Process whose network namespace the other end is made in.
    pub pid: u32,
    /// MTU of both ends in bytes.
    pub mtu: u32,
}

impl VethSpec {
    /// This end up, the other down: it has no address yet.
    pub(crate) fn to_message(&self) -> LinkMessage {
        let peer = LinkUnspec::new_with_name(&self.peer)
            .mtu(self.mtu)
            .setns_by_pid(self.pid)
            .build();
        LinkMessageBuilder::<LinkVeth>::new(&self.name, &self.peer)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .mtu(self.mtu)
            .controller(self.bridge)
            .up()
            .build()
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{LinkAttribute, LinkInfo};

    use super::*;

    #[test]
    fn the_other_end_is_made_where_the_process_is() {
        let spec = VethSpec {
            name: "v".to_owned(),
            bridge: 3,
            peer: "eth0".to_owned(),
            pid: 7,
            mtu: 1450,
        };
        let message = spec.to_message();
        assert!(message.attributes.contains(&LinkAttribute::Controller(3)));
        let peer = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
                    LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))) => Some(peer),
                    _ => None,
                }),
                _ => None,
            });
        let attributes = &peer.expect("the other end").attributes;
        for wanted in [
            LinkAttribute::IfName("eth0".to_owned()),
            LinkAttribute::NetNsPid(7),
            LinkAttribute::Mtu(1450),
        ] {
            assert!(attributes.contains(&wanted), "{wanted:?} in {attributes:?}");
        }
    }
}
