//! Datagrams of netlink, which have several messages.

use std::iter;

use netlink_packet_core::NetlinkBuffer;

/// The messages of a datagram, whole; `None`, and then no more, where it is cut off.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(datagram) else {
            datagram = &[];
            return Some(None);
        };
        let len = message.length() as usize;
        let whole = datagram.get(..len);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(whole)
    })
}
