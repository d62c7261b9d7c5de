//! The choice of the node's address and interface, while other programs change them under
//! traffic: in modes kernel and fast, with etcd and with an API server. Each test prints the
//! seconds without traffic.

mod world;

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{cluster::topology::Stack, judged};
use nix::sys::signal::Signal;

use self::world::{Kind, World};

/// The four combinations, of which most tests take two.
const ETCD_KERNEL: (Kind, &str) = (Kind::Etcd, "kernel");
const ETCD_FAST: (Kind, &str) = (Kind::Etcd, "fast");
const KUBERNETES_KERNEL: (Kind, &str) = (Kind::Kubernetes, "kernel");
const KUBERNETES_FAST: (Kind, &str) = (Kind::Kubernetes, "fast");

/// A DHCP client's address, and then a virtual one.
const DHCP_AND_VIRTUAL: [&str; 4] = [
    "ip address del 192.168.1.11/24 dev eth0",
    "ip address add 192.168.1.11/24 dev eth0 valid_lft 3600 preferred_lft 3600",
    "ip route add default via 192.168.1.1",
    "ip address add 192.168.1.100/32 dev eth0",
];

/// Runs a test with these stores and modes.
fn each(
    name: &str,
    combinations: &[(Kind, &str)],
    test: impl Fn(&str, Kind, &str) -> Result<Duration>,
) -> Result<()> {
    for (kind, mode) in combinations {
        let gap = test(name, *kind, mode)?;
        println!(
            "{name}, {kind:?}, mode {mode}: {:.2} s without traffic",
            gap.as_secs_f64()
        );
    }
    Ok(())
}

/// Fails if traffic stopped for longer than a change of that kind may take, unless the machine was
/// busy.
fn judge(what: &str, gap: Duration, limit: Duration) -> Result<Duration> {
    judged(what, || {
        ensure!(
            gap <= limit,
            "{gap:?} without traffic, at most {limit:?} are right"
        );
        Ok(())
    })?;
    Ok(gap)
}

/// The agent of the node hangs while the virtual address moves to the other node, as in a failover.
#[test]
fn a_virtual_address_moves_to_another_node() -> Result<()> {
    let combinations = [ETCD_KERNEL, ETCD_FAST, KUBERNETES_KERNEL, KUBERNETES_FAST];
    each("virtual", &combinations, |name, kind, mode| {
        let world = World::new(name, Stack::V4, kind, mode, &DHCP_AND_VIRTUAL)?;
        world.wait_published("192.168.1.11")?;
        let gap = world.under_traffic(false, || {
            world.agents[0].child().signal(Signal::SIGSTOP)?;
            world.on_a(&["ip address del 192.168.1.100/32 dev eth0"])?;
            world.net.b.sh("ip address add 192.168.1.100/32 dev eth0")?;
            world.net.b.sh("ip neighbour flush all")?;
            world.net.b.sh("ping -n -c 20 -i 0.05 -W 2 192.168.1.11")?;
            world.agents[0].child().signal(Signal::SIGCONT)
        })?;
        world.wait_published("192.168.1.11")?;
        world.expect_no_refusals();
        judge(
            "the failover of a virtual address",
            gap,
            Duration::from_secs(1),
        )
    })
}

#[test]
fn a_dhcp_lease_is_renewed_and_then_another_address_is_given() -> Result<()> {
    each(
        "dhcp",
        &[ETCD_KERNEL, KUBERNETES_FAST],
        |name, kind, mode| {
            let world = World::new(name, Stack::V4, kind, mode, &DHCP_AND_VIRTUAL)?;
            let renewed = world.under_traffic(false, || {
                world.on_a(&[
                    "ip address change 192.168.1.11/24 dev eth0 valid_lft 7200 preferred_lft 7200",
                ])
            })?;
            judge(
                "the renewal of a DHCP lease",
                renewed,
                Duration::from_secs(1),
            )?;
            let gap = world.under_traffic(false, || {
                world.on_a(&[
                    "ip address del 192.168.1.11/24 dev eth0",
                    "ip address add 192.168.1.21/24 dev eth0 valid_lft 3600 preferred_lft 3600",
                    "ip route replace default via 192.168.1.1",
                ])?;
                world.wait_published("192.168.1.21")
            })?;
            world.expect_no_refusals();
            judge("another address by DHCP", gap, Duration::from_secs(4))
        },
    )
}

/// The provider changes the IPv6 prefix: no packet is routed to the former address, which the host
/// keeps for two hours more ([RFC 4862, section
/// 5.5.3](https://www.rfc-editor.org/rfc/rfc4862#section-5.5.3)).
#[test]
fn a_deprecated_prefix_gives_way_to_the_new_one() -> Result<()> {
    let setup = [
        "ip address del 2001:db8:1::11/64 dev eth0",
        "ip address add 2001:db8:1::11/64 dev eth0 nodad valid_lft 7200 preferred_lft 7200",
        "ip -6 route replace default via fe80::1 dev eth0",
    ];
    each(
        "prefix",
        &[ETCD_KERNEL, KUBERNETES_FAST],
        |name, kind, mode| {
            let world = World::new(name, Stack::Dual, kind, mode, &setup)?;
            world.wait_published("2001:db8:1::11")?;
            world
                .net
                .r
                .sh("ip address add 2001:db8:9::1/64 dev br1 nodad")?;
            let gap = world.under_traffic(true, || {
                world
                    .net
                    .b
                    .sh("ip -6 route add blackhole 2001:db8:1::11/128")?;
                world.on_a(&[
                "ip address change 2001:db8:1::11/64 dev eth0 valid_lft 7200 preferred_lft 0",
                "ip address add 2001:db8:9::11/64 dev eth0 nodad valid_lft 7200 preferred_lft 7200",
            ])?;
                world.wait_published("2001:db8:9::11")
            })?;
            world.expect_no_refusals();
            judge("another IPv6 prefix", gap, Duration::from_secs(4))
        },
    )
}

/// The virtual address does not take the place of the node's own while that is away for a moment.
#[test]
fn an_address_that_is_away_for_a_moment_is_kept() -> Result<()> {
    each(
        "away",
        &[ETCD_KERNEL, KUBERNETES_FAST],
        |name, kind, mode| {
            let world = World::new(name, Stack::V4, kind, mode, &DHCP_AND_VIRTUAL)?;
            let gap = world.under_traffic(false, || {
            world.on_a(&["ip address del 192.168.1.11/24 dev eth0"])?;
            let status = world.agents[0].wait_ready_is(false)?;
            let why = "its address 192.168.1.11 is gone; 192.168.1.100 takes its place unless it \
                comes back";
            ensure!(status["error"].as_str().is_some_and(|error| error.contains(why)), "{status}");
            world.on_a(&[
                "ip address add 192.168.1.11/24 dev eth0 valid_lft 3600 preferred_lft 3600",
                "ip route replace default via 192.168.1.1",
            ])?;
            world.wait_published("192.168.1.11")
        })?;
            assert_eq!(
                world.agents[0].log_count("the external interface changed"),
                0,
                "the virtual one was never taken"
            );
            judge(
                "an address that is away for a moment",
                gap,
                Duration::from_secs(4),
            )
        },
    )
}

/// An address that stays away is given up, and taken again when it returns.
#[test]
fn an_address_that_returns_later_is_taken_again() -> Result<()> {
    each("returns", &[ETCD_FAST], |name, kind, mode| {
        let world = World::new(name, Stack::V4, kind, mode, &DHCP_AND_VIRTUAL)?;
        world.on_a(&[
            "ip address del 192.168.1.11/24 dev eth0",
            "ip route replace 192.168.1.0/24 dev eth0",
        ])?;
        world.wait_published("192.168.1.100")?;
        let gap = world.under_traffic(false, || {
            world.on_a(&[
                "ip route del 192.168.1.0/24 dev eth0",
                "ip address add 192.168.1.11/24 dev eth0 valid_lft 3600 preferred_lft 3600",
                "ip route replace default via 192.168.1.1",
            ])?;
            world.wait_published("192.168.1.11")
        })?;
        world.expect_no_refusals();
        judge("an address that returns", gap, Duration::from_secs(4))
    })
}

/// The cable is pulled, the static address stays, and the default route moves to another interface
/// in another network.
#[test]
fn another_uplink_takes_over() -> Result<()> {
    each(
        "uplink",
        &[ETCD_FAST, KUBERNETES_KERNEL],
        |name, kind, mode| {
            let world = World::new(name, Stack::V4, kind, mode, &[])?;
            world.second_uplink()?;
            let gap = world.under_traffic(false, || {
                world.net.r.sh("ip link set eth-a down")?;
                world.on_a(&[
                    "ip route del default",
                    "ip route del 192.168.1.0/24 dev eth0",
                    "ip route add default via 192.168.3.1 dev eth1",
                ])?;
                let status = world.agents[0].wait_ready_is(false)?;
                let why = "the external interface eth0 cannot be used: it has no carrier";
                ensure!(
                    status["error"]
                        .as_str()
                        .is_some_and(|error| error.contains(why)),
                    "{status}"
                );
                world.wait_published("192.168.3.11")
            })?;
            ensure!(world.agents[0].status()?["interface"]["name"] == "eth1");
            world.expect_no_refusals();
            judge("another uplink", gap, Duration::from_secs(20))
        },
    )
}

/// The tunnel device never is the external interface, although a DHCP client gave it the only
/// default route, and it is not deleted. A name that is a bridge of pods is refused with the
/// reason.
#[test]
fn a_device_of_pods_is_never_the_external_interface() -> Result<()> {
    let world = World::new("poddevice", Stack::V4, Kind::Etcd, "fast", &[])?;
    let index = || {
        world
            .net
            .a
            .sh("cat /sys/class/net/flannel.1/ifindex")
            .map(|output| output.stdout)
    };
    let before = index()?;
    // A running agent removes the route: it takes onlink routes on its device for those of peers.
    world.agents[0].sigterm_and_wait()?;
    world.on_a(&[
        "ip address add 169.254.7.7/16 dev flannel.1",
        "ip route add default via 192.168.1.1 dev flannel.1 metric 206 onlink",
        "ip route del default via 192.168.1.1 dev eth0",
    ])?;
    let untouched = || {
        ensure!(index()? == before, "another flannel.1");
        world.pods[0].ping(world.pods[1].ip())
    };
    for (flags, why) in [
        (
            vec![],
            "the IPv4 default route leaves by flannel.1, which is a tunnel of flannel",
        ),
        (
            vec!["--iface-regex=^flannel"],
            "flannel.1 is a tunnel of flannel, and not an external interface",
        ),
        (
            vec!["--iface-can-reach=203.0.113.7"],
            "flannel.1 is a tunnel of flannel, and not an external interface",
        ),
    ] {
        let agent = world.agent_of_a(&flags)?;
        agent.wait_status(why, |status| {
            ensure!(
                status["error"]
                    .as_str()
                    .is_some_and(|error| error.contains(why)),
                "{flags:?}: {status}"
            );
            Ok(())
        })?;
        untouched()?;
        agent.sigterm_and_wait()?;
    }
    let (code, text) = world.agent_of_a(&["--iface=cni0"])?.wait_end()?;
    ensure!(
        code == 1 && text.contains("cni0: cni0 is a bridge of pods, and not an external interface"),
        "{text}"
    );
    untouched().map(drop)
}
