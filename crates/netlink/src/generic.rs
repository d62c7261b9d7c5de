//! The numbers of generic netlink protocols, which the kernel gives out by their names.

use netlink_packet_generic::{
    GenlMessage,
    ctrl::{GenlCtrl, GenlCtrlCmd, nlas::GenlCtrlAttrs},
};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::{
    error::{Fault, NetlinkError, Verb},
    open,
    reply::Prune,
    socket,
    transport::Transport,
};

impl Prune for GenlMessage<GenlCtrl> {}

/// The number of the protocol of this name. The kernel knows it once its module is loaded
/// (`ctrl_getfamily()` in [net/netlink/genetlink.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netlink/genetlink.c)).
pub(super) async fn protocol_number(name: &str) -> Result<u16, NetlinkError> {
    let socket = open("a NETLINK_GENERIC socket", || {
        socket::for_requests(NETLINK_GENERIC)
    })?;
    let control: Transport<GenlMessage<GenlCtrl>> = Transport::spawn(socket);
    let question = GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(name.to_owned())],
    };
    let failed = |fault: Fault| fault.on(Verb::LookUp, format_args!("the protocol {name}"));
    let (_, answer) = control
        .fetch(GenlMessage::from_payload(question))
        .await
        .map_err(failed)?
        .into_parts();
    let number = answer.nlas.iter().find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    number.ok_or_else(|| failed(Fault::NoAnswer))
}
