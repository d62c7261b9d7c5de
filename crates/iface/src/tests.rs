//! The selection against made-up hosts, the documented stock results among them.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_netlink::{Address, AddressFlags, AddressKey, AddressScope};

use super::*;

fn link(index: u32, name: &str) -> Link {
    Link {
        loopback: name == "lo",
        ..Link::ethernet(index, name, 1500)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn address(ifindex: u32, text: &str) -> Address {
    let key = AddressKey {
        ifindex,
        addr: ip(text),
        prefix_len: 24,
    };
    Address {
        key,
        scope: AddressScope::Universe,
        flags: AddressFlags::Permanent,
    }
}

const fn default_route(family: Family, ifindex: u32) -> DefaultRoute {
    DefaultRoute {
        family,
        ifindex,
        metric: 0,
        src: None,
        source: None,
    }
}

fn host() -> Host {
    let dummy0 = [
        "1.10.100.1",
        "192.168.200.128",
        "172.16.30.18",
        "172.16.31.200",
        "172.16.32.100",
        "2001:db8::1",
    ];
    let mut addresses = vec![
        address(1, "127.0.0.1"),
        address(1, "10.255.0.1"),
        address(2, "10.0.0.1"),
    ];
    addresses.extend(dummy0.map(|text| address(3, text)));
    Host {
        links: vec![
            link(1, "lo"),
            link(2, "eth0"),
            link(3, "dummy0"),
            link(4, "bare0"),
        ],
        addresses,
        defaults: vec![default_route(Family::V4, 2)],
        pods: Vec::new(),
        reach: Some(Reach {
            ifindex: 3,
            source: Some(ip("172.16.32.100")),
        }),
    }
}

fn options(iface: &[&str], public: Option<&str>) -> IfaceOptions {
    let iface = iface.iter().map(ToString::to_string).collect();
    let public_ip = public.map(|text| text.parse().expect("an IPv4 address"));
    IfaceOptions {
        iface,
        public_ip,
        ..IfaceOptions::default()
    }
}

fn matching(patterns: &[&str], public: Option<&str>) -> IfaceOptions {
    let patterns = patterns
        .iter()
        .map(|text| NamePattern::new(text).expect("a pattern"))
        .collect();
    IfaceOptions {
        patterns,
        ..options(&[], public)
    }
}

fn reaching(target: &str) -> IfaceOptions {
    IfaceOptions {
        can_reach: Some(ip(target)),
        ..IfaceOptions::default()
    }
}

#[test]
fn devices_of_the_pod_network_are_no_candidates() {
    let of_kind = |kind: &str, link: Link| Link {
        kind: Some(kind.to_owned()),
        ..link
    };
    let links = vec![
        link(2, "eth0"),
        of_kind("veth", link(3, "eth1")),
        of_kind("vxlan", link(4, "flannel.1")),
        of_kind("bridge", link(5, "cni0")),
        Link {
            controller: Some(5),
            ..of_kind("veth", link(6, "veth6"))
        },
        of_kind("veth", link(7, "cali7")),
        of_kind("bridge", link(8, "br0")),
        of_kind("vxlan", link(9, "vxlan9")),
    ];
    let addresses = vec![
        address(3, "192.0.2.3"),
        address(5, "10.5.1.1"),
        address(7, "fe80::7"),
    ];
    let listed = Candidates::of(&Host {
        links,
        addresses,
        ..Host::default()
    })
    .to_string();
    let names: Vec<_> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(names, ["eth0", "eth1", "br0", "vxlan9"]);
}

fn v4(chosen: &ExternalInterface) -> End {
    chosen.ends[&Family::V4]
}

/// A case, its options, and the name, the address and the public address that they choose.
type StockResult = (
    &'static str,
    IfaceOptions,
    (&'static str, &'static str, &'static str),
);

fn results_of_names() -> Vec<StockResult> {
    vec![
        (
            "nothing given",
            options(&[], None),
            ("eth0", "10.0.0.1", "10.0.0.1"),
        ),
        (
            "name",
            options(&["dummy0"], None),
            ("dummy0", "1.10.100.1", "1.10.100.1"),
        ),
        (
            "address",
            options(&["172.16.30.18"], None),
            ("dummy0", "172.16.30.18", "172.16.30.18"),
        ),
        (
            "public only",
            options(&[], Some("172.16.31.200")),
            ("dummy0", "172.16.31.200", "172.16.31.200"),
        ),
        (
            "both local",
            options(&["172.16.30.18"], Some("172.16.31.200")),
            ("dummy0", "172.16.30.18", "172.16.31.200"),
        ),
        (
            "public behind NAT",
            options(&["eth0"], Some("203.0.113.7")),
            ("eth0", "10.0.0.1", "203.0.113.7"),
        ),
        (
            "first that fits",
            options(&["bond0", "bare0", "dummy0"], None),
            ("dummy0", "1.10.100.1", "1.10.100.1"),
        ),
        (
            "address on lo",
            options(&["10.255.0.1"], None),
            ("lo", "10.255.0.1", "10.255.0.1"),
        ),
    ]
}

fn results_of_patterns() -> Vec<StockResult> {
    vec![
        (
            "regex on an address",
            matching(&[r"192\.168\.200\.\d+"], None),
            ("dummy0", "192.168.200.128", "192.168.200.128"),
        ),
        (
            "regex on a name",
            matching(&[r"dummy\d+"], None),
            ("dummy0", "1.10.100.1", "1.10.100.1"),
        ),
        (
            "regex and public",
            matching(&[r"172\.16\.30\.\d+"], Some("172.16.31.200")),
            ("dummy0", "172.16.30.18", "172.16.31.200"),
        ),
        (
            "can reach",
            reaching("172.16.32.254"),
            ("dummy0", "172.16.32.100", "172.16.32.100"),
        ),
        (
            "addresses before names",
            matching(&[r"^(bare|10\.0\.)"], None),
            ("eth0", "10.0.0.1", "10.0.0.1"),
        ),
        (
            "regexes in order",
            matching(&["^wlan", "^dummy", "^eth"], None),
            ("dummy0", "1.10.100.1", "1.10.100.1"),
        ),
        (
            "the first name that serves",
            matching(&["^(bare|dummy)"], None),
            ("dummy0", "1.10.100.1", "1.10.100.1"),
        ),
    ]
}

#[test]
fn the_stock_results() {
    for (name, options, expected) in results_of_names().into_iter().chain(results_of_patterns()) {
        let chosen = select(&options, &[Family::V4], &host()).expect(name);
        let (iface, addr, public) = expected;
        let End {
            addr: own,
            public: published,
            ..
        } = v4(&chosen);
        assert_eq!(
            (chosen.name.as_str(), own, published),
            (iface, ip(addr), ip(public)),
            "{name}"
        );
    }
}

#[test]
fn the_family_decides_what_is_examined() {
    let mut host = host();
    let chosen =
        select(&options(&["dummy0"], None), &[Family::V6], &host).expect("an IPv6 address");
    assert_eq!(chosen.ends[&Family::V6].addr, ip("2001:db8::1"));
    let missing = select(&options(&[], None), &[Family::V6], &host);
    assert!(matches!(
        missing,
        Err(IfaceError::NoDefaultRoute {
            family: Family::V6,
            ..
        })
    ));
    host.defaults.push(default_route(Family::V6, 3));
    assert_eq!(
        select(&options(&[], None), &[Family::V6], &host)
            .expect("a route")
            .index,
        3
    );
}

#[test]
fn the_error_lists_what_was_tried_and_what_there_is() {
    let error = select(
        &options(&["bond0", "10.0.0.9", "fd00::1", "bare0"], None),
        &[Family::V4],
        &host(),
    );
    let text = error.expect_err("nothing fits").to_string();
    let expected = "no interface fits what was asked for:\n  \
                      bond0: no such interface\n  \
                      10.0.0.9: no interface has this address\n  \
                      fd00::1: not an IPv4 address\n  \
                      bare0: no usable IPv4 address\n\
                    pass --iface with the name or a local address of one of:\n  \
                      eth0 (up): 10.0.0.1\n  \
                      dummy0 (up): 1.10.100.1, 192.168.200.128, 172.16.30.18, 172.16.31.200, \
                      172.16.32.100, \
                    2001:db8::1\n  \
                      bare0 (up): no address";
    assert_eq!(text, expected);
}

#[test]
fn a_public_address_alone_has_to_be_local() {
    let error = select(&options(&[], Some("203.0.113.7")), &[Family::V4], &host());
    assert!(matches!(error, Err(IfaceError::PublicNotLocal { .. })));
}

#[test]
fn of_several_next_hops_the_one_that_serves_all_families_is_taken() {
    let mut host = host();
    host.defaults = [
        (Family::V4, 2),
        (Family::V4, 3),
        (Family::V6, 4),
        (Family::V6, 3),
    ]
    .map(|(family, ifindex)| default_route(family, ifindex))
    .into();
    let chosen =
        select(&options(&[], None), &Family::BOTH, &host).expect("dummy0 has both families");
    assert_eq!(chosen.name, "dummy0");
    host.defaults.retain(|route| route.ifindex != 3);
    let differ = select(&options(&[], None), &Family::BOTH, &host)
        .expect_err("no common one")
        .to_string();
    assert!(
        differ.starts_with(
            "the IPv4 default route leaves by eth0 and the IPv6 default route by bare0"
        ),
        "{differ}"
    );
}

#[test]
fn a_next_hop_without_an_address_gives_way_to_another() {
    let mut host = host();
    host.defaults = vec![default_route(Family::V4, 4), default_route(Family::V4, 3)];
    assert_eq!(
        select(&options(&[], None), &[Family::V4], &host)
            .expect("dummy0")
            .name,
        "dummy0"
    );
    host.defaults.pop();
    let none = select(&options(&[], None), &[Family::V4], &host);
    assert!(
        matches!(
            none,
            Err(IfaceError::Unusable {
                why: Rejection::NoAddress(_),
                ..
            })
        ),
        "{none:?}"
    );
}

#[test]
fn an_mtu_of_zero_is_refused() {
    let mut host = host();
    host.links[1].mtu = 0;
    let error = select(&options(&[], None), &[Family::V4], &host);
    assert!(matches!(
        error,
        Err(IfaceError::Unusable {
            why: Rejection::NoMtu,
            ..
        })
    ));
}

#[test]
fn regexes_come_after_interfaces_and_the_reach_comes_last() {
    let all = IfaceOptions {
        iface: vec!["eth0".into()],
        ..matching(&["^dummy"], None)
    };
    let all = IfaceOptions {
        can_reach: Some(ip("172.16.32.254")),
        ..all
    };
    let chosen = |options: &IfaceOptions| {
        select(options, &[Family::V4], &host())
            .expect("an interface")
            .ends[&Family::V4]
            .addr
    };
    assert_eq!(chosen(&all), ip("10.0.0.1"));
    let all = IfaceOptions {
        iface: vec!["bond0".into()],
        ..all
    };
    assert_eq!(chosen(&all), ip("1.10.100.1"));
    let all = IfaceOptions {
        patterns: matching(&["^bond"], None).patterns,
        ..all
    };
    assert_eq!(chosen(&all), ip("172.16.32.100"));
    let nowhere = select(
        &all,
        &[Family::V4],
        &Host {
            reach: None,
            ..host()
        },
    )
    .expect_err("no route")
    .to_string();
    for line in [
        "bond0: no such interface",
        "--iface-regex=^bond: it matches no",
        "=172.16.32.254: no route",
    ] {
        assert!(nowhere.contains(line), "{line}: {nowhere}");
    }
}

#[test]
fn a_bad_regex_says_what_is_wrong() {
    let error = NamePattern::new("eth(").expect_err("malformed").to_string();
    assert!(
        error.starts_with("--iface-regex=eth( is no regular expression: ") && !error.contains('\n'),
        "{error}"
    );
    assert!(
        !error.contains("error:"),
        "the one who prints it says that it is one: {error}"
    );
}

/// The interface chosen by `options`, or what it lacks, once `change` happened to the host and time
/// has passed.
fn followed(
    options: &IfaceOptions,
    change: impl FnOnce(&mut Host),
) -> Result<ExternalInterface, String> {
    let (interface, lost) = followed_for(&[Family::V4], options, host(), change);
    lost.map_or(Ok(interface), Err)
}

fn followed_for(
    families: &[Family],
    options: &IfaceOptions,
    mut host: Host,
    change: impl FnOnce(&mut Host),
) -> (ExternalInterface, Option<String>) {
    let start = Instant::now();
    let mut follower =
        Follower::choose(options.clone(), families.to_vec(), &host).expect("an interface");
    follower.look(&host, start);
    change(&mut host);
    host.defaults.clear();
    host.reach = None;
    for seconds in 1..10 {
        follower.look(&host, start + Duration::from_secs(seconds));
    }
    (
        follower.chosen().clone(),
        follower.problem().map(str::to_owned),
    )
}

/// The text of an interface that lacks something.
fn unusable(name: &str, why: Rejection) -> String {
    Lost::Unusable {
        name: name.to_owned(),
        why,
    }
    .to_string()
}

fn readdress(host: &mut Host, from: &str, to: Option<&str>) {
    host.addresses.retain(|own| own.key.addr != ip(from));
    host.addresses.extend(to.map(|to| address(2, to)));
}

#[test]
fn the_chosen_interface_is_followed_by_its_name() {
    let again = followed(&options(&[], None), |host| {
        host.links[1] = link(9, "eth0");
        host.addresses
            .iter_mut()
            .filter(|own| own.key.ifindex == 2)
            .for_each(|own| own.key.ifindex = 9);
    });
    let again = again.expect("the interface");
    assert_eq!(
        (again.index, v4(&again).addr, v4(&again).public),
        (9, ip("10.0.0.1"), ip("10.0.0.1"))
    );
    let gone = followed(&options(&["eth0"], None), |host| {
        host.links.retain(|link| link.name != "eth0");
    });
    assert_eq!(
        gone,
        Err(Lost::Gone {
            name: "eth0".into()
        }
        .to_string())
    );
}

#[test]
fn an_address_is_kept_until_it_is_gone() {
    for (name, options) in [
        ("default route", options(&[], None)),
        ("name", options(&["eth0"], None)),
    ] {
        let kept = followed(&options, |host| {
            host.addresses.insert(0, address(2, "10.0.0.7"));
        });
        assert_eq!(v4(&kept.expect(name)).addr, ip("10.0.0.1"), "{name}");
        let changed = followed(&options, |host| {
            readdress(host, "10.0.0.1", Some("10.0.0.7"));
        })
        .expect(name);
        assert_eq!(
            (v4(&changed).addr, v4(&changed).public),
            (ip("10.0.0.7"), ip("10.0.0.7")),
            "{name}"
        );
        let none = followed(&options, |host| readdress(host, "10.0.0.1", None));
        assert_eq!(
            none,
            Err(unusable("eth0", Rejection::NoAddress(Family::V4))),
            "{name}"
        );
    }
}

#[test]
fn another_address_has_to_be_as_asked_for() {
    let readdressed = |options: &IfaceOptions, to| {
        followed(options, |host| readdress(host, "10.0.0.1", Some(to)))
    };
    for options in [options(&["10.0.0.1"], None), options(&[], Some("10.0.0.1"))] {
        let lost = readdressed(&options, "10.0.0.7").expect_err("another address");
        assert_eq!(lost, unusable("eth0", Rejection::NoSuchAddress));
    }
    let pattern = matching(&[r"^10\.0\."], None);
    assert_eq!(
        v4(&readdressed(&pattern, "10.0.3.1").expect("it matches")).addr,
        ip("10.0.3.1")
    );
    assert!(readdressed(&pattern, "10.9.0.1").is_err());
    let nat = options(&["eth0"], Some("203.0.113.7"));
    let changed = v4(&readdressed(&nat, "10.0.0.7").expect("the interface"));
    assert_eq!(
        (changed.addr, changed.public),
        (ip("10.0.0.7"), ip("203.0.113.7"))
    );
}

#[test]
fn no_other_interface_takes_the_place_of_the_chosen_one() {
    let options = matching(&["^(eth|dummy)"], None);
    let lost = followed(&options, |host| readdress(host, "10.0.0.1", None))
        .expect_err("dummy0 is another");
    assert_eq!(lost, unusable("eth0", Rejection::NoAddress(Family::V4)));
}

/// `eth0` and `dummy0` with both families, and the default routes of both by `eth0`.
fn dual_host() -> Host {
    let mut host = host();
    // The kernel lists the newest first.
    host.addresses.splice(
        0..0,
        ["fd00::2", "fd00::1", "fe80::2"].map(|text| address(2, text)),
    );
    host.addresses.insert(0, address(3, "fd00:3::1"));
    host.defaults.push(default_route(Family::V6, 2));
    host.reach = Some(Reach {
        ifindex: 3,
        source: Some(ip("fd00:3::1")),
    });
    host
}

fn with(iface: &[&str], public: Option<&str>, public_ipv6: Option<&str>) -> IfaceOptions {
    IfaceOptions {
        public_ipv6: public_ipv6.map(|text| text.parse().expect("an IPv6 address")),
        ..options(iface, public)
    }
}

/// The expected strings are a name, and the address of each family.
fn dual_results() -> Vec<StockResult> {
    vec![
        (
            "nothing given",
            with(&[], None, None),
            ("eth0", "10.0.0.1", "fd00::1"),
        ),
        (
            "name",
            with(&["eth0"], None, None),
            ("eth0", "10.0.0.1", "fd00::1"),
        ),
        (
            "IPv4 literal",
            with(&["172.16.30.18"], None, None),
            ("dummy0", "172.16.30.18", "2001:db8::1"),
        ),
        (
            "IPv6 literal",
            with(&["fd00:3::1"], None, None),
            ("dummy0", "1.10.100.1", "fd00:3::1"),
        ),
        (
            "public alone",
            with(&[], Some("10.0.0.1"), Some("fd00::2")),
            ("eth0", "10.0.0.1", "fd00::2"),
        ),
        (
            "one public alone",
            with(&[], None, Some("fd00:3::1")),
            ("dummy0", "1.10.100.1", "fd00:3::1"),
        ),
        (
            "both match",
            matching(&["^(172|fd00)"], None),
            ("dummy0", "172.16.30.18", "fd00:3::1"),
        ),
        (
            "name matches",
            matching(&["^eth"], None),
            ("eth0", "10.0.0.1", "fd00::1"),
        ),
        (
            "can reach by IPv6",
            reaching("fd00:3::fe"),
            ("dummy0", "1.10.100.1", "fd00:3::1"),
        ),
    ]
}

#[test]
fn one_interface_serves_both_families() {
    let dual = |options: IfaceOptions| select(&options, &Family::BOTH, &dual_host());
    for (name, options, expected) in dual_results() {
        let chosen = dual(options).expect(name);
        let [v4, v6] = Family::BOTH.map(|family| chosen.ends[&family].addr);
        let (iface, addr, addr6) = expected;
        assert_eq!(
            (chosen.name.as_str(), v4, v6),
            (iface, ip(addr), ip(addr6)),
            "{name}"
        );
    }
    let behind_nat = dual(with(
        &["eth0"],
        Some("203.0.113.7"),
        Some("2001:db8:ffff::7"),
    ))
    .expect("an interface");
    let end = behind_nat.ends[&Family::V6];
    assert_eq!(
        (end.addr, end.public, end.source),
        (ip("fd00::1"), ip("2001:db8:ffff::7"), ip("fd00::1"))
    );
}

#[test]
fn an_interface_for_one_family_alone_is_refused() {
    let dual = |options: &IfaceOptions, host: &Host| {
        select(options, &Family::BOTH, host).expect_err("not both")
    };
    let mut apart = dual_host();
    apart.defaults[1] = default_route(Family::V6, 3);
    let text = dual(&options(&[], None), &apart).to_string();
    assert!(
        text.starts_with(
            "the IPv4 default route leaves by eth0 and the IPv6 default route by dummy0"
        ),
        "{text}"
    );
    let publics = IfaceOptions {
        public_ipv6: "fd00:3::1".parse().ok(),
        ..options(&[], Some("10.0.0.1"))
    };
    let text = dual(&publics, &dual_host()).to_string();
    assert!(
        text.starts_with("--public-ipv6 fd00:3::1 without --iface") && text.contains("of eth0"),
        "{text}"
    );
    let text = dual(&options(&["fe80::2"], None), &dual_host()).to_string();
    assert!(
        text.contains("fe80::2: an IPv6 address of link scope"),
        "{text}"
    );
    let text = dual(&matching(&[r"^10\.0\."], None), &dual_host()).to_string();
    assert!(
        text.contains("it matches no usable address and no interface name"),
        "{text}"
    );
    let mut v4_only = dual_host();
    v4_only
        .addresses
        .retain(|own| own.key.ifindex != 2 || own.key.addr.is_ipv4());
    let text = dual(&options(&["eth0"], None), &v4_only).to_string();
    assert!(text.contains("eth0: no usable IPv6 address"), "{text}");
}

#[test]
fn each_family_is_followed_for_itself() {
    let change = |host: &mut Host| readdress(host, "fd00::1", None);
    let (interface, lost) = followed_for(
        &Family::BOTH,
        &options(&["eth0"], None),
        dual_host(),
        change,
    );
    let ends = Family::BOTH.map(|family| interface.ends[&family].addr);
    assert_eq!((ends, lost), ([ip("10.0.0.1"), ip("fd00::2")], None));
    let change = |host: &mut Host| {
        readdress(host, "10.0.0.1", Some("10.0.0.7"));
        readdress(host, "fd00::1", None);
        readdress(host, "fd00::2", None);
    };
    let (interface, lost) = followed_for(
        &Family::BOTH,
        &options(&["eth0"], None),
        dual_host(),
        change,
    );
    let ends = Family::BOTH.map(|family| interface.ends[&family].addr);
    assert_eq!(
        ends,
        [ip("10.0.0.7"), ip("fd00::1")],
        "a link-local address does not take the place of a global one"
    );
    assert_eq!(
        lost,
        Some(unusable("eth0", Rejection::NoAddress(Family::V6)))
    );
}
