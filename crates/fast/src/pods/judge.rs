//! Decides if packets of a pod may take the fast path, separately for each direction, and gives the
//! reasons if not. Pure.
//!
//! A replayed packet skips what lies between its entry and its exit: on its way out the rest of the
//! veth's ingress, the bridge and the tunnel device's egress; on its way in the tunnel device's
//! ingress, the bridge and the veth's egress. So nothing may be there that judges, counts or delays
//! single packets: no qdisc, no filter, no program of others, no offload that was switched off.
//! What netfilter does there is observed, and needs no gate.

use std::fmt;

use flannel_backend_api::offload::OffloadSetting;
use flannel_common::abi::fast::PodEntry;
use flannel_host::words::first;
use flannel_netlink::Link;
use ipnet::IpNet;

use super::inside::Inside;

/// The largest MTU of a veth whose other end has no XDP program.
const UNLIMITED: u32 = 65535;
/// The root qdisc of a device that does not queue.
const NO_QUEUE: &str = "noqueue";

/// The side on which packets pass a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceSide {
    /// Packets that the device receives.
    Ingress,
    /// Packets that it sends.
    Egress,
}

/// The filters and programs of others on one side of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Filters of tc.
    pub filters: bool,
    /// TCX programs.
    pub programs: bool,
}

/// A device packets pass, and who is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The device.
    pub link: Link,
    /// On its ingress.
    pub ingress: Others,
    /// On its egress.
    pub egress: Others,
    /// The offload setting by which it changes packets that it sends.
    pub offload: Option<OffloadSetting>,
}

/// A reason why packets do not take the fast path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodReason {
    /// The device is down.
    Down(String),
    /// Both ends of the veth are in this namespace.
    NoNamespace,
    /// The other end of the veth cannot be seen, or has no Ethernet address.
    NoPeer,
    /// A program of the pod takes what the pod receives before anything else sees it.
    Xdp,
    /// A program takes what the device receives.
    DeviceXdp(String),
    /// The device queues by this qdisc.
    Qdisc(String, String),
    /// There are filters of others.
    Filters(String, DeviceSide),
    /// There are TCX programs of others.
    Programs(String, DeviceSide),
    /// The device has to change packets that would skip it.
    Offload(OffloadSetting),
    /// The operator's option names an address of the pod.
    Excluded(IpNet),
    /// The pod of this name opted out by an annotation.
    Annotated(String),
    /// Some pod is to stay out, and it may be this one.
    NoAddress,
    /// These devices are up in the pod, and what it forwards by them would be cut into segments in
    /// software.
    NodeDevices(Vec<String>),
    /// The devices of the pod cannot be read.
    DevicesUnknown,
    /// An IPsec policy of this number may cover packets of pods.
    Ipsec(u32),
    /// The IPsec policies cannot be read, because of this error.
    PoliciesUnknown(String),
}

impl fmt::Display for PodReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(device) => write!(f, "{device} is down"),
            Self::NoNamespace => {
                f.write_str("both ends of the veth are in the node's own network namespace")
            }
            Self::NoPeer => f.write_str("the pod's end of the veth cannot be read"),
            Self::Xdp => f.write_str("an XDP program is in the pod"),
            Self::DeviceXdp(device) => write!(f, "an XDP program is on {device}"),
            Self::Qdisc(device, kind) => write!(f, "a {kind} qdisc is on {device}"),
            Self::Filters(device, side) => write!(f, "tc filters are on the {side} of {device}"),
            Self::Programs(device, side) => {
                write!(f, "TCX programs of others are on the {side} of {device}")
            }
            Self::Offload(setting) => setting.fmt(f),
            Self::Excluded(prefix) => write!(f, "--fast-exclude={prefix} says so"),
            Self::Annotated(pod) => write!(f, "the annotation of pod {pod} says so"),
            Self::NodeDevices(names) => write!(f, "{} in its network namespace", are_up(names)),
            Self::DevicesUnknown => {
                f.write_str("the devices of its network namespace cannot be read")
            }
            Self::Ipsec(index) => write!(f, "IPsec policy {index} may cover packets of pods"),
            Self::PoliciesUnknown(error) => write!(f, "the IPsec policies cannot be read: {error}"),
            Self::NoAddress => {
                f.write_str("its addresses are not known, and some pod is to stay out")
            }
        }
    }
}

/// The first few of many devices.
fn are_up(names: &[String]) -> String {
    const FEW: usize = 3;
    match names {
        [name] => format!("{name} is up"),
        names => format!("{} are up", first(names, FEW)),
    }
}

impl fmt::Display for DeviceSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// The decision on one pod. Without a reason against either way its packets take the fast path both
/// ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVerdict {
    /// The entry for the programs; none where the pod is left alone.
    pub entry: Option<PodEntry>,
    /// The reasons why packets from the pod are left to the kernel.
    pub sends: Vec<PodReason>,
    /// The reasons why packets to the pod are left to the kernel.
    pub receives: Vec<PodReason>,
    /// The reason why merged packets (GSO) to the pod are left to the kernel, if others are not.
    pub merged: Option<PodReason>,
}

/// Decides on the pod behind a veth, which leads to `inside`. `ways` are the bridge it is on and
/// the tunnel devices; `exclusion` is the reason why the pod is excluded, if it is.
pub(super) fn judge<'a>(
    veth: &Passed,
    inside: &Inside,
    ways: impl Iterator<Item = &'a Passed>,
    exclusion: Option<PodReason>,
) -> PodVerdict {
    let (host, name) = (&veth.link, &veth.link.name);
    let mut verdict = PodVerdict::default();
    if let Some(reason) = exclusion {
        verdict.neither(reason);
    }
    if host.netns.is_none() {
        verdict.neither(PodReason::NoNamespace);
    }
    if !host.up {
        verdict.neither(PodReason::Down(name.clone()));
    }
    let Some((peer, mac)) = inside.end.as_ref().and_then(|peer| Some((peer, peer.mac?))) else {
        verdict.neither(PodReason::NoPeer);
        return verdict;
    };
    if peer.xdp || host.max_mtu != Some(UNLIMITED) {
        verdict.receives.push(PodReason::Xdp);
    }
    verdict
        .sends
        .extend(veth.ingress.reasons(name, DeviceSide::Ingress));
    verdict.receives.extend(
        queue(host)
            .into_iter()
            .chain(veth.egress.reasons(name, DeviceSide::Egress)),
    );
    verdict
        .receives
        .extend(veth.offload.clone().map(PodReason::Offload));
    for way in ways {
        verdict.pass(way, host.controller == Some(way.link.index));
    }
    verdict.merged = inside.forwards().filter(|_| verdict.receives.is_empty());
    let flags = if verdict.sends.is_empty() {
        PodEntry::SENDS
    } else {
        0
    } | verdict.receiving();
    verdict.entry = (flags != 0).then(|| PodEntry {
        mac,
        flags,
        mtu: host.mtu.min(peer.mtu),
        ..PodEntry::default()
    });
    verdict
}

impl Inside {
    /// The reason to expect that the pod forwards what it receives, if there is one.
    fn forwards(&self) -> Option<PodReason> {
        match &self.devices {
            None => Some(PodReason::DevicesUnknown),
            Some(names) if names.is_empty() => None,
            Some(names) => Some(PodReason::NodeDevices(names.clone())),
        }
    }
}

impl PodVerdict {
    /// The flags of the packets to the pod.
    const fn receiving(&self) -> u16 {
        match (self.receives.is_empty(), &self.merged) {
            (true, None) => PodEntry::RECEIVES | PodEntry::MERGED,
            (true, Some(_)) => PodEntry::RECEIVES,
            (false, _) => 0,
        }
    }

    fn neither(&mut self, reason: PodReason) {
        self.sends.push(reason.clone());
        self.receives.push(reason);
    }

    /// Packets pass a bridge by both its sides both ways at most: from a pod they come in by its
    /// ingress, to a pod they leave by its egress. A tunnel device is passed by its egress from a
    /// pod, by its ingress to one; its offload settings make the paths to peers not plain, which
    /// does not concern packets between pods of this node.
    fn pass(&mut self, way: &Passed, is_bridge: bool) {
        let Passed {
            link,
            ingress,
            egress,
            offload,
        } = way;
        if !link.up {
            self.neither(PodReason::Down(link.name.clone()));
        }
        let (in_by, out_by) = if is_bridge {
            (&mut self.sends, &mut self.receives)
        } else {
            (&mut self.receives, &mut self.sends)
        };
        in_by.extend(link.xdp.then(|| PodReason::DeviceXdp(link.name.clone())));
        in_by.extend(ingress.reasons(&link.name, DeviceSide::Ingress));
        out_by.extend(queue(link));
        out_by.extend(egress.reasons(&link.name, DeviceSide::Egress));
        out_by.extend(
            offload
                .clone()
                .filter(|_| is_bridge)
                .map(PodReason::Offload),
        );
    }
}

impl Others {
    pub(crate) fn reasons(self, device: &str, side: DeviceSide) -> impl Iterator<Item = PodReason> {
        let filters = self
            .filters
            .then(|| PodReason::Filters(device.to_owned(), side));
        let programs = self
            .programs
            .then(|| PodReason::Programs(device.to_owned(), side));
        filters.into_iter().chain(programs)
    }
}

/// Returns the reason if packets queue on a device: a qdisc other than [`NO_QUEUE`].
fn queue(link: &Link) -> Option<PodReason> {
    let kind = link.qdisc.as_deref().filter(|kind| *kind != NO_QUEUE)?;
    Some(PodReason::Qdisc(link.name.clone(), kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use flannel_common::packet::addr::Mac;

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 5]);
    const CNI0: u32 = 4;

    fn link(index: u32, name: &str) -> Link {
        Link {
            max_mtu: Some(UNLIMITED),
            mac: Some(MAC),
            qdisc: Some(NO_QUEUE.to_owned()),
            ..Link::ethernet(index, name, 1450)
        }
    }

    fn passed(link: Link) -> Passed {
        Passed {
            link,
            ingress: Others::default(),
            egress: Others::default(),
            offload: None,
        }
    }

    fn veth() -> Passed {
        passed(Link {
            controller: Some(CNI0),
            netns: Some(0),
            ..link(7, "veth1")
        })
    }

    /// The verdict after a change of the veth, the pod's end, the bridge and the tunnel device.
    fn after(change: impl FnOnce(&mut Passed, &mut Link, &mut Passed, &mut Passed)) -> PodVerdict {
        let (mut veth, mut peer) = (
            veth(),
            Link {
                mtu: 1400,
                ..link(2, "eth0")
            },
        );
        let (mut bridge, mut tunnel) = (passed(link(CNI0, "cni0")), passed(link(3, "flannel.1")));
        change(&mut veth, &mut peer, &mut bridge, &mut tunnel);
        judge(&veth, &alone(peer), [bridge, tunnel].iter(), None)
    }

    /// A pod with its own end of the veth and nothing else.
    fn alone(end: Link) -> Inside {
        Inside {
            end: Some(end),
            devices: Some(Vec::new()),
        }
    }

    /// Returns true for packets from the pod, and for packets to it, if they take the fast path.
    fn ways(verdict: &PodVerdict) -> (bool, bool) {
        verdict.entry.map_or((false, false), |entry| {
            (entry.has(PodEntry::SENDS), entry.has(PodEntry::RECEIVES))
        })
    }

    const ALL: Others = Others {
        filters: true,
        programs: true,
    };

    #[test]
    fn a_plain_pod_takes_the_fast_path_with_the_address_and_the_size_of_its_own_end() {
        let verdict = after(|_, _, _, _| {});
        let flags = PodEntry::SENDS | PodEntry::RECEIVES | PodEntry::MERGED;
        let entry = PodEntry {
            mac: MAC,
            flags,
            mtu: 1400,
            ..PodEntry::default()
        };
        assert_eq!(
            verdict,
            PodVerdict {
                entry: Some(entry),
                ..PodVerdict::default()
            }
        );
    }

    #[test]
    fn a_pod_that_cannot_be_known_is_left_alone() {
        assert_eq!(
            ways(&after(|veth, _, _, _| veth.link.netns = None)),
            (false, false)
        );
        assert_eq!(
            ways(&after(|veth, _, _, _| veth.link.up = false)),
            (false, false)
        );
        assert_eq!(
            ways(&after(|_, peer, _, _| peer.mac = None)),
            (false, false)
        );
        assert_eq!(
            ways(&judge(&veth(), &Inside::default(), [].iter(), None)),
            (false, false)
        );
    }

    #[test]
    fn a_pod_that_is_to_stay_out_is_left_alone_and_says_who_wants_it() {
        let inside = alone(link(2, "eth0"));
        let verdict = judge(
            &veth(),
            &inside,
            [].iter(),
            Some(PodReason::Annotated("default/db".to_owned())),
        );
        assert_eq!(verdict.entry, None);
        let texts: Vec<_> = verdict
            .sends
            .iter()
            .chain(&verdict.receives)
            .map(ToString::to_string)
            .collect();
        assert_eq!(texts, ["the annotation of pod default/db says so"; 2]);
    }

    fn assert_bridge_and_tunnel_forbid_the_ways_by_them() {
        assert_eq!(
            ways(&after(|_, _, bridge, _| bridge.ingress = ALL)),
            (false, true)
        );
        assert_eq!(
            ways(&after(|_, _, bridge, _| bridge.egress = ALL)),
            (true, false)
        );
        assert_eq!(
            ways(&after(
                |_, _, bridge, _| bridge.link.qdisc = Some("tbf".to_owned())
            )),
            (true, false)
        );
        assert_eq!(
            ways(&after(|_, _, bridge, _| bridge.link.xdp = true)),
            (false, true)
        );
        assert_eq!(
            ways(&after(|_, _, bridge, _| bridge.link.up = false)),
            (false, false)
        );
        assert_eq!(
            ways(&after(|_, _, _, tunnel| tunnel.ingress = ALL)),
            (true, false)
        );
        assert_eq!(
            ways(&after(|_, _, _, tunnel| tunnel.egress = ALL)),
            (false, true)
        );
        assert_eq!(
            ways(&after(
                |_, _, bridge, _| bridge.offload = Some(OffloadSetting::off("cni0"))
            )),
            (true, false)
        );
        let tunnel =
            after(|_, _, _, tunnel| tunnel.offload = Some(OffloadSetting::off("flannel.1")));
        assert_eq!(
            ways(&tunnel),
            (true, true),
            "the paths to peers are not plain, others are"
        );
        assert_eq!(
            ways(&after(
                |_, _, _, tunnel| tunnel.link.qdisc = Some("htb".to_owned())
            )),
            (false, true)
        );
    }

    #[test]
    fn what_only_one_way_would_skip_forbids_that_way() {
        assert_eq!(
            ways(&after(|veth, _, _, _| veth.ingress = ALL)),
            (false, true)
        );
        assert_eq!(
            ways(&after(|veth, _, _, _| veth.egress = ALL)),
            (true, false)
        );
        assert_eq!(
            ways(&after(
                |veth, _, _, _| veth.link.qdisc = Some("tbf".to_owned())
            )),
            (true, false)
        );
        assert_eq!(
            ways(&after(|veth, _, _, _| veth.link.max_mtu = Some(3000))),
            (true, false)
        );
        assert_eq!(ways(&after(|_, peer, _, _| peer.xdp = true)), (true, false));
        assert_eq!(
            ways(&after(
                |veth, _, _, _| veth.offload = Some(OffloadSetting::off("veth1"))
            )),
            (true, false)
        );
        assert_bridge_and_tunnel_forbid_the_ways_by_them();
    }

    #[test]
    fn a_pod_that_may_forward_gets_no_merged_packets_and_says_why() {
        let judged = |devices: Option<&[&str]>| {
            let devices =
                devices.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let verdict = judge(
                &veth(),
                &Inside {
                    devices,
                    ..alone(link(2, "eth0"))
                },
                [].iter(),
                None,
            );
            let entry = verdict.entry.expect("other packets are taken");
            assert!(entry.has(PodEntry::SENDS | PodEntry::RECEIVES) && verdict.receives.is_empty());
            (
                entry.has(PodEntry::MERGED),
                verdict.merged.map(|reason| reason.to_string()),
            )
        };
        let left = |text: &str| (false, Some(text.to_owned()));
        assert_eq!(judged(Some(&[])), (true, None));
        assert_eq!(
            judged(Some(&["tap0"])),
            left("tap0 is up in its network namespace")
        );
        assert_eq!(
            judged(Some(&["br0", "tap0"])),
            left("br0, tap0 are up in its network namespace")
        );
        let many = left("a, b, c and 2 more are up in its network namespace");
        assert_eq!(judged(Some(&["a", "b", "c", "d", "e"])), many);
        assert_eq!(
            judged(None),
            left("the devices of its network namespace cannot be read")
        );
    }

    #[test]
    fn of_a_pod_that_receives_nothing_merged_packets_are_not_distinguished() {
        let verdict = after(|veth, _, _, _| veth.egress = ALL);
        assert_eq!((ways(&verdict), verdict.merged), ((true, false), None));
    }

    #[test]
    fn reasons_name_the_device_and_the_side() {
        let verdict = after(|veth, _, bridge, _| {
            veth.ingress.filters = true;
            bridge.link.qdisc = Some("tbf".to_owned());
        });
        let texts =
            |reasons: &[PodReason]| reasons.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts(&verdict.sends),
            ["tc filters are on the ingress of veth1"]
        );
        assert_eq!(texts(&verdict.receives), ["a tbf qdisc is on cni0"]);
    }
}
