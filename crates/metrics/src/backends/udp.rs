//! Metrics of the process of the backend udp.

use flannel_status::UdpStatus;

use crate::{
    catalogue as metric,
    page::{Page, number},
};

/// Writes the packets of the process; nothing with another backend.
pub(crate) fn write(page: &mut Page, status: Option<&UdpStatus>) {
    let Some(UdpStatus {
        pid,
        starts,
        counts,
        ..
    }) = status
    else {
        return;
    };
    page.boolean(metric::UDP_PROCESS, pid.is_some());
    page.value(metric::UDP_STARTS, number(*starts));
    let directions = [
        ("sent", counts.sent_packets),
        ("received", counts.received_packets),
    ];
    page.list(
        metric::UDP_PACKETS,
        directions.map(|(direction, packets)| ([direction], number(packets))),
    );
    let directions = [
        ("sent", counts.sent_bytes),
        ("received", counts.received_bytes),
    ];
    page.list(
        metric::UDP_BYTES,
        directions.map(|(direction, bytes)| ([direction], number(bytes))),
    );
    page.list(
        metric::UDP_DROPS,
        counts
            .drops()
            .map(|(reason, packets)| ([reason], number(packets))),
    );
}
