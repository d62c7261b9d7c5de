//! The choice among several addresses of a node, with the real kernel's source addresses
//! (`RTM_GETROUTE`), in the order in which programs add them.

use std::time::Duration;

use flannel_host::family::Family;
use flannel_iface::{ExternalInterface, Host, IfaceError, IfaceOptions, select};
use ipnet::IpNet;
use tokio::time::{interval, timeout};

use crate::{
    namespace::{addr, in_namespace, ip},
    shared::Namespace,
};

async fn chosen(ns: &Namespace, family: Family) -> Result<ExternalInterface, IfaceError> {
    let pods: Vec<IpNet> = vec!["10.244.0.0/16".parse().expect("a network")];
    let host = Host::read(&ns.netlink, &[family], &IfaceOptions::default(), &pods)
        .await
        .expect("the host");
    select(&IfaceOptions::default(), &[family], &host)
}

/// Waits until a command of iproute2 shows a word.
async fn until(arguments: &str, word: &str) {
    let mut ticks = interval(Duration::from_millis(50));
    let shown = async {
        while !ip(arguments).contains(word) {
            ticks.tick().await;
        }
    };
    timeout(Duration::from_secs(20), shown)
        .await
        .unwrap_or_else(|_| panic!("{word}: {}", ip(arguments)));
}

/// Runs commands on a host whose interface has no address yet, and compares the choice.
fn check(situation: &'static str, family: Family, commands: &[&'static str], right: &'static str) {
    let commands = commands.to_vec();
    in_namespace(async move |ns| {
        ip("addr flush dev eth0 scope global");
        for command in commands {
            drop(ip(command));
        }
        let found = chosen(&ns, family)
            .await
            .unwrap_or_else(|error| panic!("{situation}: {error}"));
        let found = format!("{} {}", found.name, found.ends[&family].addr);
        let get = match family {
            Family::V4 => ip("route get 10.9.0.254"),
            Family::V6 => ip("-6 route get 2001:db8:ffff::1"),
        };
        assert_eq!(found, right, "{situation}: the kernel says {get}");
    });
}

const LEASED: &str = "addr add 10.9.0.1/24 dev eth0 valid_lft 3600 preferred_lft 3600";
const VIRTUAL: &str = "addr add 10.9.0.100/32 dev eth0";
const DEFAULT: &str = "route add default via 10.9.0.254";

#[test]
fn a_virtual_address_is_not_the_node_s_in_any_order() {
    check(
        "after",
        Family::V4,
        &[LEASED, DEFAULT, VIRTUAL],
        "eth0 10.9.0.1",
    );
    check(
        "before",
        Family::V4,
        &[VIRTUAL, LEASED, DEFAULT],
        "eth0 10.9.0.1",
    );
    check(
        "secondary",
        Family::V4,
        &[LEASED, DEFAULT, "addr add 10.9.0.100/24 dev eth0"],
        "eth0 10.9.0.1",
    );
    let named = "route add default via 10.9.0.254 src 10.9.0.100";
    check(
        "named by the route",
        Family::V4,
        &[LEASED, VIRTUAL, named],
        "eth0 10.9.0.1",
    );
    check(
        "on lo",
        Family::V4,
        &["addr add 10.9.0.100/32 dev lo", LEASED, DEFAULT],
        "eth0 10.9.0.1",
    );
    let no_preference = "addr add 10.9.0.100/24 dev eth0 preferred_lft 0";
    check(
        "deprecated",
        Family::V4,
        &[
            no_preference,
            LEASED,
            "route add default via 10.9.0.254 src 10.9.0.1",
        ],
        "eth0 10.9.0.1",
    );
}

#[test]
fn the_default_route_tells_which_of_several_subnets_is_the_node_s() {
    let two = "addr add 10.8.0.1/24 dev eth0";
    check(
        "by its gateway",
        Family::V4,
        &[two, LEASED, DEFAULT],
        "eth0 10.9.0.1",
    );
    let named = "route add default via 10.9.0.254 src 10.8.0.1";
    check(
        "by its source",
        Family::V4,
        &[LEASED, two, named],
        "eth0 10.8.0.1",
    );
    check(
        "without a gateway",
        Family::V4,
        &[two, LEASED, "route add default dev eth0 scope link"],
        "eth0 10.8.0.1",
    );
    let on_link = "route add default via 10.7.0.1 dev eth0 onlink";
    check(
        "a single address",
        Family::V4,
        &["addr add 10.9.0.7/32 dev eth0", on_link],
        "eth0 10.9.0.7",
    );
    check(
        "two single ones",
        Family::V4,
        &[
            "addr add 10.9.0.7/32 dev eth0",
            "addr add 10.9.0.100/32 dev eth0",
            on_link,
        ],
        "eth0 10.9.0.7",
    );
    let unnumbered = "route add default src 10.255.0.7 via inet6 fe80::1 dev eth0";
    check(
        "only on lo",
        Family::V4,
        &["addr add 10.255.0.7/32 dev lo", unnumbered],
        "eth0 10.255.0.7",
    );
    check(
        "in the pod network",
        Family::V4,
        &["addr add 10.244.7.1/24 dev eth0", LEASED, DEFAULT],
        "eth0 10.9.0.1",
    );
}

const PREFIX_1: &str =
    "-6 addr add 2001:db8:1::1/64 dev eth0 nodad valid_lft 7200 preferred_lft 7200";
const PREFIX_2: &str =
    "-6 addr add 2001:db8:2::1/64 dev eth0 nodad valid_lft 7200 preferred_lft 7200";
const DEFAULT_V6: &str = "-6 route add default via fe80::1 dev eth0";

#[test]
fn ipv6_addresses_follow_the_kernel_except_where_it_takes_a_virtual_one() {
    let virtual_v6 = "-6 addr add 2001:db8:1::100/128 dev eth0 nodad";
    check(
        "longer match",
        Family::V6,
        &[PREFIX_1, DEFAULT_V6, virtual_v6],
        "eth0 2001:db8:1::1",
    );
    let same_prefix = "-6 addr add 2001:db8:1::100/64 dev eth0 nodad";
    check(
        "the newest",
        Family::V6,
        &[PREFIX_1, DEFAULT_V6, same_prefix],
        "eth0 2001:db8:1::1",
    );
    let deprecate = "-6 addr change 2001:db8:1::1/64 dev eth0 valid_lft 7200 preferred_lft 0";
    check(
        "deprecated",
        Family::V6,
        &[PREFIX_1, PREFIX_2, deprecate, DEFAULT_V6],
        "eth0 2001:db8:2::1",
    );
    check(
        "only a deprecated one",
        Family::V6,
        &[PREFIX_1, deprecate, DEFAULT_V6],
        "eth0 2001:db8:1::1",
    );
    let unique_local = "-6 addr add fd00:7::1/64 dev eth0 nodad";
    check(
        "before",
        Family::V6,
        &[unique_local, PREFIX_1, DEFAULT_V6],
        "eth0 2001:db8:1::1",
    );
    check(
        "after",
        Family::V6,
        &[PREFIX_1, unique_local, DEFAULT_V6],
        "eth0 2001:db8:1::1",
    );
    check(
        "only local",
        Family::V6,
        &[unique_local, DEFAULT_V6],
        "eth0 fd00:7::1",
    );
}

/// The other end of the cable has the address already.
#[test]
fn an_address_in_use_elsewhere_is_never_chosen() {
    in_namespace(async |ns| {
        ip("addr flush dev eth0 scope global");
        ip("-6 addr add 2001:db8:1::7/64 dev peer0 nodad");
        ip("-6 addr add 2001:db8:1::7/64 dev eth0");
        ip(DEFAULT_V6);
        until("-6 addr show dev eth0", "dadfailed").await;
        let found = chosen(&ns, Family::V6).await;
        assert!(
            matches!(found, Err(IfaceError::Unusable { .. })),
            "{found:?}: {}",
            ip("-6 addr show")
        );
        ip(PREFIX_2);
        let found = chosen(&ns, Family::V6).await.expect("the other address");
        assert_eq!(found.ends[&Family::V6].addr, addr("2001:db8:2::1"));
    });
}

/// The kernel chooses among next hops by a hash that differs from boot to boot. With that weight it
/// chooses the second, but for one boot in 200.
#[test]
fn of_several_next_hops_the_kernel_s_choice_is_taken_and_a_dead_one_is_not() {
    for (family, routes, outside) in [
        (
            Family::V4,
            "route add default nexthop via 10.9.0.254 nexthop via 10.7.0.254 weight 200",
            "240.0.0.1",
        ),
        (
            Family::V6,
            "-6 route add default nexthop via fd00:9::fe nexthop via fd00:7::fe weight 200",
            "2000::1",
        ),
    ] {
        in_namespace(async move |ns| {
            ip("link add eth1 type veth peer name peer1");
            ip("link set eth1 up");
            ip("link set peer1 up");
            ip("addr add 10.7.0.1/24 dev eth1");
            ip("addr add fd00:7::1/64 dev eth1 nodad");
            ip(routes);
            let by_kernel = || {
                let answer = ip(&format!("route get {outside}"));
                answer
                    .split(" dev ")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next())
                    .expect("a device")
                    .to_owned()
            };
            let name = async || chosen(&ns, family).await.expect("an interface").name;
            let first = by_kernel();
            assert_eq!(name().await, first, "{family}");
            let (second, peer) = if first == "eth0" {
                ("eth1", "peer0")
            } else {
                ("eth0", "peer1")
            };
            ip(&format!("link set {peer} down"));
            until(&format!("link show {first}"), "LOWERLAYERDOWN").await;
            assert_eq!(
                name().await,
                second,
                "{family}: {first} has no carrier, and the kernel says {}",
                by_kernel()
            );
        });
    }
}

#[test]
fn a_dead_default_route_counts_only_if_no_other_works() {
    in_namespace(async |ns| {
        ip("link add eth1 type veth peer name peer1");
        ip("link set eth1 up");
        ip("link set peer1 up");
        ip("addr add 10.7.0.1/24 dev eth1");
        ip("route add default via 10.9.0.254 metric 100");
        ip("route add default via 10.7.0.254 metric 200");
        let name = async || chosen(&ns, Family::V4).await.expect("an interface").name;
        assert_eq!(name().await, "eth0");
        ip("link set peer0 down");
        until("link show eth0", "LOWERLAYERDOWN").await;
        assert_eq!(name().await, "eth1", "eth0 has no carrier");
        ip("link set peer1 down");
        until("link show eth1", "LOWERLAYERDOWN").await;
        assert_eq!(name().await, "eth0", "none works");
        ip("link set peer0 up");
        until("link show eth0", "state UP").await;
        assert_eq!(name().await, "eth0");
    });
}
