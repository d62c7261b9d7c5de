//! The blackhole route.

use flannel_traffic::{Engine, MasqueradeFamilies, TrafficOptions};

use crate::support::{Namespace, all, in_namespace, run, scope, v4, v6, wait_tried, wanted};

fn alone() -> TrafficOptions {
    TrafficOptions {
        masquerade: MasqueradeFamilies::NONE,
        forward: false,
        ..all()
    }
}

fn blackholes(family: &str) -> String {
    run(&format!("ip {family} route show type blackhole"))
}

#[test]
fn it_is_made_repaired_moved_and_removed() {
    in_namespace(async |mut ns| {
        run("ip route add blackhole 10.42.7.0/24");
        run("ip route add blackhole 10.77.0.0/16 proto 191");
        let theirs = blackholes("-4");
        let mut traffic = ns
            .traffic(Some(Engine::Iptables), alone(), wanted(&[v4(), v6()]))
            .await;
        assert_eq!(traffic.status().error, None);
        assert!(
            blackholes("-4").contains("10.42.1.0/24 proto 191 metric 4294967295"),
            "{}",
            blackholes("-4")
        );
        assert!(
            blackholes("-6").contains("fd00:10:244:1::/64 dev lo proto 191"),
            "{}",
            blackholes("-6")
        );

        run("ip route del blackhole 10.42.1.0/24");
        run("ip -6 route del blackhole fd00:10:244:1::/64");
        while traffic.status().repairs == 0 {
            // As the main loop does.
            tokio::select! {
                event = ns.events.next() => traffic.observe(&event.expect("an event")),
                () = traffic.changed() => {}
            }
        }
        assert!(
            blackholes("-4").contains("10.42.1.0/24")
                && blackholes("-6").contains("fd00:10:244:1::/64")
        );
        traffic.want(wanted(&[scope("10.42.0.0/16", "10.42.9.0/24"), v6()]));
        assert_eq!(wait_tried(&mut traffic).await.error, None);
        assert!(
            blackholes("-4").contains("10.42.9.0/24") && !blackholes("-4").contains("10.42.1.0/24")
        );
        assert!(blackholes("-6").contains("fd00:10:244:1::/64"));
        drop(traffic);

        let off = TrafficOptions {
            blackhole: false,
            ..alone()
        };
        let _traffic = ns
            .traffic(Some(Engine::Iptables), off, wanted(&[v4(), v6()]))
            .await;
        assert_eq!(blackholes("-4"), theirs);
        assert_eq!(blackholes("-6"), "");
    });
}

/// Without its own metric the blackhole route would win, because it is the older of the two routes
/// to the subnet. And a request to delete an IPv6 route takes any with the same destination unless
/// it names the metric.
#[test]
fn a_pod_bridge_comes_first_and_stays() {
    in_namespace(async |ns: Namespace| {
        let traffic = ns
            .traffic(Some(Engine::Iptables), alone(), wanted(&[v4(), v6()]))
            .await;
        run("ip link add cni0 type bridge");
        run("ip link set cni0 up");
        run("ip addr add 10.42.1.1/24 dev cni0");
        run("ip addr add fd00:10:244:1::1/64 dev cni0 nodad");
        let to_pods_by_the_bridge = || {
            assert!(run("ip route get 10.42.1.5").contains("dev cni0"));
            assert!(run("ip route get fd00:10:244:1::5").contains("dev cni0"));
        };
        to_pods_by_the_bridge();
        drop(traffic);
        let off = TrafficOptions {
            blackhole: false,
            ..alone()
        };
        let _traffic = ns
            .traffic(Some(Engine::Iptables), off, wanted(&[v4(), v6()]))
            .await;
        assert_eq!(blackholes("-4") + &blackholes("-6"), "");
        to_pods_by_the_bridge();
    });
}

#[test]
fn what_no_pod_has_taken_is_dropped() {
    in_namespace(async |ns: Namespace| {
        run("ip link add eth0 type veth peer name peer0");
        run("ip link set peer0 up");
        run("ip link set eth0 up");
        run("ip addr add 192.168.1.1/24 dev eth0");
        run("ip route add default via 192.168.1.254");
        assert!(run("ip route get 10.42.1.5").contains("dev eth0"));
        let _traffic = ns
            .traffic(Some(Engine::Iptables), alone(), wanted(&[v4()]))
            .await;
        let refused = std::process::Command::new("ip")
            .args(["route", "get", "10.42.1.5"])
            .output()
            .expect("ip");
        assert!(!refused.status.success());
        assert!(
            run("ip route get 10.42.2.5").contains("dev eth0"),
            "other subnets are not ours"
        );
    });
}
