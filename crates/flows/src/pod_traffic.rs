//! Traffic of pods: the counters of the host side of a pod's veth, and what the programs have put
//! into the pod past it. The veth's own counters have all that the pod sends.

use std::collections::BTreeMap;

use flannel_common::abi::{fast::PodEntry, stats::Counter};
use flannel_datapath::{
    DatapathError, PinRoot,
    maps::traffic::{Counters as _, TrafficMap},
};
use flannel_netlink::{LinkCounters, Netlink, NetlinkError};

/// The counters of all links, by interface index.
pub type AllLinkCounters = BTreeMap<u32, LinkCounters>;

/// Packets and bytes of a pod since its veth was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodTraffic {
    /// To the pod.
    pub to: Counter,
    /// From the pod.
    pub from: Counter,
}

/// Reads the counters of all links; `None` if the kernel does not give them.
pub async fn link_counters() -> Option<AllLinkCounters> {
    let read = async {
        let (netlink, _events) = Netlink::connect()?;
        netlink.link_counters().await
    };
    let read: Result<_, NetlinkError> = read.await;
    read.inspect_err(|error| tracing::debug!(%error, "the counters of pods are not known"))
        .ok()
}

/// The sources of the numbers.
pub struct PodCounters<'a> {
    links: Option<&'a AllLinkCounters>,
    past_veth: TrafficMap<Counter>,
}

impl<'a> PodCounters<'a> {
    /// Opens the pin, with the counters of links that were read.
    pub fn open(pins: &PinRoot, links: Option<&'a AllLinkCounters>) -> Result<Self, DatapathError> {
        Ok(Self {
            links,
            past_veth: TrafficMap::of_pods(pins)?,
        })
    }

    /// The traffic of the pod at this veth; `None` if the link is not in this namespace, or the pod
    /// shares its slot.
    pub fn of(&self, veth: u32, pod: &PodEntry) -> Result<Option<PodTraffic>, DatapathError> {
        let Some(link) = self.links.and_then(|links| links.get(&veth)) else {
            return Ok(None);
        };
        let past_veth = self.past_veth.get_own(pod.traffic)?;
        Ok(past_veth.map(|past_veth| sum(link, past_veth)))
    }
}

/// The sum of both. Packets that the host side of a veth transmits go to the pod.
fn sum(link: &LinkCounters, past_veth: Counter) -> PodTraffic {
    let to = Counter {
        packets: link.sent_packets,
        bytes: link.sent_bytes,
    };
    let from = Counter {
        packets: link.received_packets,
        bytes: link.received_bytes,
    };
    PodTraffic {
        to: to.plus(past_veth),
        from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_what_its_veth_transmits_and_what_goes_past_it() {
        let link = LinkCounters {
            received_packets: 1,
            received_bytes: 60,
            sent_packets: 2,
            sent_bytes: 200,
        };
        let past_veth = Counter {
            packets: 10,
            bytes: 1000,
        };
        let from = Counter {
            packets: 1,
            bytes: 60,
        };
        assert_eq!(
            sum(&link, past_veth),
            PodTraffic {
                to: Counter {
                    packets: 12,
                    bytes: 1200
                },
                from
            }
        );
    }
}
