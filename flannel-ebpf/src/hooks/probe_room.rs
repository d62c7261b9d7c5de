//! Probes whether this kernel adds and removes outer headers as the programs need it. Attached
//! nowhere: the agent runs it once on a packet of its own. An unknown flag shows only when the
//! helper is called.

use flannel_common::program::{ROOM_MADE, ROOM_TAKEN};

use crate::{
    packet::{
        family::{Family, by_family},
        skb::Skb,
    },
    tunnel::encapsulation::{make_room, remove_outer},
};

/// Returns [`ROOM_MADE`] and [`ROOM_TAKEN`], as far as they worked.
#[inline(always)]
pub(crate) fn run(skb: &Skb) -> u32 {
    by_family!(skb, probe(skb), else 0)
}

#[inline(always)]
fn probe<F: Family>(skb: &Skb) -> u32 {
    if make_room::<F>(skb).is_err() {
        return 0;
    }
    if remove_outer::<F>(skb).is_ok() { ROOM_MADE | ROOM_TAKEN } else { ROOM_MADE }
}
