//! Reading and removing tc filters and clsact qdiscs, which aya cannot do without a link of its
//! own. One request at a time on a blocking socket: this runs at attachment and at clean-up only.

use std::io;

use aya::programs::TcAttachType;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcHandle, TcMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// The identity of a filter on one side of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterId {
    /// Its priority ("pref").
    pub priority: u16,
    /// Its handle.
    pub handle: u32,
}

/// Returns true if the qdisc for filters on the device is clsact. An ingress qdisc has no egress,
/// but answers a request for its egress filters with those of its ingress. Reads the list of all
/// qdiscs: the kernel announces a request for a single one to all listeners, the requester
/// included (`tc_get_qdisc()` in [net/sched/sch_api.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/sched/sch_api.c)).
pub fn has_clsact(ifindex: u32) -> io::Result<bool> {
    let wanted = message(ifindex)?.header.index;
    let is_clsact =
        |attribute: &TcAttribute| matches!(attribute, TcAttribute::Kind(kind) if kind == "clsact");
    let answers = request(
        RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()),
        NLM_F_DUMP,
    )?;
    Ok(answers.iter().any(|answer| match answer {
        RouteNetlinkMessage::NewQueueDiscipline(found) => {
            found.header.index == wanted && found.attributes.iter().any(is_clsact)
        }
        _ => false,
    }))
}

/// The filters on one side of a device's clsact qdisc; none if it has no such qdisc.
pub fn list(ifindex: u32, side: TcAttachType) -> io::Result<Vec<FilterId>> {
    let mut message = message(ifindex)?;
    message.header.parent = parent(side);
    let answers = match request(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_DUMP) {
        // No qdisc with such a parent: EINVAL, or ENOENT on newer kernels.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(nix::libc::EINVAL | nix::libc::ENOENT)
            ) =>
        {
            return Ok(Vec::new());
        }
        other => other?,
    };
    // A filter is listed twice, first its chain's head with handle 0.
    let ids = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewTrafficFilter(found) if handle_of(&found) != 0 => {
            let priority = u16::try_from(found.header.info >> 16).ok()?;
            Some(FilterId {
                priority,
                handle: handle_of(&found),
            })
        }
        _ => None,
    });
    Ok(ids.collect())
}

/// Removes one filter.
pub fn delete(ifindex: u32, side: TcAttachType, filter: FilterId) -> io::Result<()> {
    let mut message = message(ifindex)?;
    message.header.parent = parent(side);
    message.header.handle = handle(filter.handle);
    message.header.info = u32::from(filter.priority) << 16 | u32::from(ETH_P_ALL.to_be());
    request(RouteNetlinkMessage::DelTrafficFilter(message), NLM_F_ACK).map(drop)
}

/// Removes the clsact qdisc of a device. One that is not there, on a device that may be gone, is no
/// error.
pub fn delete_clsact(ifindex: u32) -> io::Result<()> {
    let mut message = message(ifindex)?;
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle {
        major: TcHandle::CLSACT.major,
        minor: 0,
    };
    message
        .attributes
        .push(TcAttribute::Kind("clsact".to_owned()));
    match request(RouteNetlinkMessage::DelQueueDiscipline(message), NLM_F_ACK) {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(nix::libc::EINVAL | nix::libc::ENOENT | nix::libc::ENODEV)
            ) =>
        {
            Ok(())
        }
        other => other.map(drop),
    }
}

const ETH_P_ALL: u16 = 0x0003;

fn message(ifindex: u32) -> io::Result<TcMessage> {
    i32::try_from(ifindex)
        .map(TcMessage::with_index)
        .map_err(io::Error::other)
}

const fn parent(side: TcAttachType) -> TcHandle {
    let minor = match side {
        TcAttachType::Ingress => TcHandle::MIN_INGRESS,
        TcAttachType::Egress => TcHandle::MIN_EGRESS,
        TcAttachType::Custom(parent) => return handle(parent),
    };
    TcHandle {
        major: TcHandle::CLSACT.major,
        minor,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of the number"
)]
const fn handle(number: u32) -> TcHandle {
    TcHandle {
        major: (number >> 16) as u16,
        minor: number as u16,
    }
}

fn handle_of(message: &TcMessage) -> u32 {
    u32::from(message.header.handle.major) << 16 | u32::from(message.header.handle.minor)
}

/// Sends one request and collects its answers.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::from(message);
    packet.header.flags = NLM_F_REQUEST | flags;
    packet.finalize();
    let mut buffer = vec![0; packet.buffer_len()];
    packet.serialize(&mut buffer);
    socket.send(&buffer, 0)?;
    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(io::Error::other)?;
            let taken = (answer.header.length as usize)
                .next_multiple_of(4)
                .min(rest.len());
            rest = &rest[taken..];
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                NetlinkPayload::Error(error) => match error.to_io().raw_os_error() {
                    None | Some(0) => return Ok(answers),
                    Some(_) => return Err(error.to_io()),
                },
                NetlinkPayload::Done(_) => return Ok(answers),
                _ => {}
            }
        }
    }
}
