//! Hosts as one line of text: devices between `; `, each with its addresses after a colon.
//!
//! Words of a device: `down`, `no-carrier`, `default` (a default route leaves by it), `metric=N`,
//! `from=ADDRESS` (the default route names that source), `kernel` (of several next hops of one
//! default route the kernel's own choice). Words of an address are its flags, and
//! `source`: the kernel's own for packets to the gateway.

use std::net::IpAddr;

use flannel_host::family::Family;
use flannel_netlink::{Address, AddressFlags, AddressKey, AddressScope, Link};
use ipnet::IpNet;

use crate::{DefaultRoute, Host};

/// The pod networks of every case.
const PODS: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/48"];

const FLAGS: [(&str, AddressFlags); 6] = [
    ("secondary", AddressFlags::Secondary),
    ("temporary", AddressFlags::Secondary),
    ("nodad", AddressFlags::Nodad),
    ("deprecated", AddressFlags::Deprecated),
    ("tentative", AddressFlags::Tentative),
    ("failed", AddressFlags::Dadfailed),
];

pub(super) fn host(text: &str) -> Host {
    let pods = PODS
        .map(|network| network.parse().expect("a network"))
        .to_vec();
    let mut host = Host {
        pods,
        ..Host::default()
    };
    for (index, device) in (2..).zip(text.split("; ")) {
        read_device(&mut host, index, device);
    }
    host.defaults.sort_by_key(|route| route.metric);
    host
}

fn read_device(host: &mut Host, index: u32, text: &str) {
    let (head, addresses) = text.split_once(": ").unwrap_or((text, ""));
    let mut words = head.split(' ');
    let name = words.next().expect("a name");
    let mut link = Link {
        kind: kind_of(name),
        loopback: name == "lo",
        ..Link::ethernet(index, name, 1500)
    };
    let (mut has_default, mut is_choice, mut metric, mut from) = (false, false, 0, None);
    for word in words {
        match word.split_once('=') {
            Some(("metric", value)) => metric = value.parse().expect("a number"),
            Some(("from", value)) => from = Some(value.parse::<IpAddr>().expect("an address")),
            None if word == "default" => has_default = true,
            None if word == "kernel" => is_choice = true,
            None if word == "down" => (link.up, link.running) = (false, false),
            None if word == "no-carrier" => link.running = false,
            _ => panic!("{word} in {text}"),
        }
    }
    host.links.push(link);
    let mut source = None;
    for address in addresses.split(", ").filter(|address| !address.is_empty()) {
        let (address, is_source) = read_address(index, address);
        source = source.or(is_source.then_some(address.key.addr));
        host.addresses.push(address);
    }
    if has_default {
        let known = source
            .or(from)
            .or(host.addresses.last().map(|last| last.key.addr));
        let family = known.map_or(Family::V4, Family::of);
        let place = if is_choice { 0 } else { host.defaults.len() };
        host.defaults.insert(
            place,
            DefaultRoute {
                family,
                ifindex: index,
                metric,
                src: from,
                source,
            },
        );
    }
}

fn read_address(ifindex: u32, text: &str) -> (Address, bool) {
    let mut words = text.split(' ');
    let net: IpNet = words.next().and_then(|net| net.parse().ok()).expect(text);
    let (mut flags, mut is_source) = (AddressFlags::Permanent, false);
    for word in words {
        match word {
            "source" => is_source = true,
            "leased" => flags.remove(AddressFlags::Permanent),
            _ => flags |= FLAGS.iter().find(|(name, _)| *name == word).expect(text).1,
        }
    }
    let key = AddressKey {
        ifindex,
        addr: net.addr(),
        prefix_len: net.prefix_len(),
    };
    (
        Address {
            key,
            scope: AddressScope::Universe,
            flags,
        },
        is_source,
    )
}

fn kind_of(name: &str) -> Option<String> {
    let kinds = [
        ("flannel.", "vxlan"),
        ("vxlan", "vxlan"),
        ("cni", "bridge"),
        ("br", "bridge"),
        ("veth", "veth"),
    ];
    kinds
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map(|(_, kind)| (*kind).to_owned())
}
