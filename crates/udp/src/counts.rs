//! Counts of packets.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Packets since the first of the processes that took over from each other began. Packets
        /// are those of pods, so what the kernel hands over as one may be many.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// Counters that threads share.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        impl Counters {
            /// Goes on from these counts.
            pub(crate) fn from(counts: Counts) -> Arc<Self> {
                Arc::new(Self { $($name: Counter(AtomicU64::new(counts.$name)),)+ })
            }

            /// Returns the counts.
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counts! {
    /// Packets sent to peers.
    sent_packets;
    /// Their bytes, from the IPv4 header on.
    sent_bytes;
    /// Packets of peers that the kernel got.
    received_packets;
    /// Their bytes, likewise.
    received_bytes;
    /// Dropped: not an IPv4 packet, or a damaged or incomplete one.
    malformed;
    /// Dropped: no peer has the destination.
    no_route;
    /// Dropped: the time to live ended.
    ttl_exceeded;
    /// Dropped: the sender is not a peer.
    unknown_sender;
    /// Dropped: the kernel did not send it to the peer.
    not_sent;
    /// Dropped: the kernel did not accept it from the device.
    not_delivered;
}

impl Counts {
    /// Dropped packets by reason.
    pub const fn drops(&self) -> [(&'static str, u64); 6] {
        [
            ("malformed", self.malformed),
            ("no_route", self.no_route),
            ("ttl_exceeded", self.ttl_exceeded),
            ("unknown_sender", self.unknown_sender),
            ("not_sent", self.not_sent),
            ("not_delivered", self.not_delivered),
        ]
    }
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds a number.
    pub(crate) fn add(&self, number: usize) {
        self.0
            .fetch_add(u64::try_from(number).unwrap_or(0), Ordering::Relaxed);
    }
}
