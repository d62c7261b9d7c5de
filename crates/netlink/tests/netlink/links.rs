//! Links, vxlan devices and addresses.

use flannel_netlink::{AddressKey, EthtoolNetlink, KernelEvent, Link, VxlanInfo, VxlanSpec};

use crate::{
    events::until,
    namespace::{VTEP_MAC, addr, in_namespace, ip, ip_json, run},
};

#[test]
fn the_vxlan_device_is_stock_flannel_s() {
    in_namespace(async |ns| {
        ns.vxlan("10.9.0.1").await;
        let shown = ip("-d link show flannel.1");
        // Newer kernels and tools show what is new to them behind this.
        let stock = "vxlan id 1 local 10.9.0.1 dev eth0 srcport 0 0 dstport 8472 nolearning ttl \
            auto ageing 300 \
                     udpcsum noudp6zerocsumtx noudp6zerocsumrx";
        assert!(shown.contains(stock), "{shown}");
        assert!(shown.contains("mtu 1450"), "{shown}");
        assert!(shown.contains("link/ether 02:00:5e:10:00:01"), "{shown}");
    });
}

#[test]
fn the_vxlan_device_reads_back() {
    in_namespace(async |ns| {
        for local in ["10.9.0.1", "fd00:9::1"] {
            let spec = ns.vxlan(local).await;
            let link = ns.link(&spec.name).await;
            assert_eq!(
                (link.mac, link.up, link.arphrd),
                (Some(VTEP_MAC), false, Link::ETHER)
            );
            assert_eq!(link.kind.as_deref(), Some("vxlan"));
            // The kernel takes the outer header off the underlay's MTU: 50 bytes, or 70 with IPv6.
            assert_eq!(link.mtu, if spec.local.is_ipv4() { 1450 } else { 1430 });
            let expected = VxlanInfo {
                vni: 1,
                port: 8472,
                lower: Some(spec.lower),
                local: Some(spec.local),
                udp_csum: true,
                ..VxlanInfo::default()
            };
            assert_eq!(link.vxlan, Some(expected));
        }
    });
}

#[test]
fn learning_and_gbp_are_set_when_asked_for() {
    in_namespace(async |ns| {
        let lower = ns.link("eth0").await.index;
        let spec = VxlanSpec {
            name: "flannel.7".into(),
            vni: 7,
            port: 4789,
            mtu: 1400,
            mac: VTEP_MAC,
            lower,
            local: addr("10.9.0.1"),
            learning: true,
            gbp: true,
            udp_zero_csum6_rx: false,
        };
        ns.netlink.create_vxlan(&spec).await.expect("created");
        let link = &ip_json("link show flannel.7")[0];
        let data = &link["linkinfo"]["info_data"];
        assert_eq!(
            (data["learning"].as_bool(), data["gbp"].as_bool()),
            (Some(true), Some(true))
        );
        let read = ns.link("flannel.7").await.vxlan.expect("vxlan");
        assert!(read.learning && read.gbp);
    });
}

#[test]
fn only_a_new_device_can_be_set_to_take_ipv6_without_a_checksum() {
    in_namespace(async |ns| {
        for (name, udp_zero_csum6_rx) in [("flannel-v6.1", false), ("flannel-v6.2", true)] {
            let lower = ns.link("eth0").await.index;
            let spec = VxlanSpec {
                name: name.into(),
                vni: if udp_zero_csum6_rx { 2 } else { 1 },
                port: 8472,
                mtu: 1430,
                mac: VTEP_MAC,
                lower,
                local: addr("fd00:9::1"),
                learning: false,
                gbp: false,
                udp_zero_csum6_rx,
            };
            ns.netlink.create_vxlan(&spec).await.expect("created");
            let read = ns.link(name).await.vxlan.expect("vxlan");
            assert_eq!(
                (read.udp_zero_csum6_rx, read.udp_zero_csum6_tx),
                (udp_zero_csum6_rx, false),
                "{name}"
            );
        }
        let changed = std::process::Command::new("ip")
            .args([
                "link",
                "set",
                "flannel-v6.1",
                "type",
                "vxlan",
                "id",
                "1",
                "dev",
                "eth0",
                "udp6zerocsumrx",
            ])
            .output()
            .expect("ip");
        let refusal = String::from_utf8_lossy(&changed.stderr);
        assert!(
            refusal.contains("cannot change UDP_ZERO_CSUM6_RX"),
            "it could be changed in place: {refusal}"
        );
    });
}

#[test]
fn a_link_in_the_way_is_recognised() {
    in_namespace(async |ns| {
        let spec = ns.vxlan("10.9.0.1").await;
        let same_name = ns
            .netlink
            .create_vxlan(&spec)
            .await
            .expect_err("the name is taken");
        assert!(same_name.is_exists(), "{same_name:?}");
        let same_vni = VxlanSpec {
            name: "other".into(),
            ..spec
        };
        let taken = ns
            .netlink
            .create_vxlan(&same_vni)
            .await
            .expect_err("VNI and port are taken");
        assert!(taken.is_exists(), "{taken:?}");
    });
}

#[test]
fn links_are_found_changed_and_deleted() {
    in_namespace(async |ns| {
        let index = ns.flannel_1().await;
        assert!(ns.link("flannel.1").await.up);
        ns.netlink.set_mtu(index, 1400).await.expect("MTU");
        assert_eq!(
            ns.netlink
                .link_by_index(index)
                .await
                .expect("found")
                .expect("there")
                .mtu,
            1400
        );
        let too_big = ns
            .netlink
            .set_mtu(index, 70_000)
            .await
            .expect_err("too big");
        assert!(!too_big.is_gone() && !too_big.is_exists(), "{too_big:?}");

        let mut names: Vec<_> = ns
            .netlink
            .links()
            .await
            .expect("links")
            .into_iter()
            .map(|link| link.name)
            .collect();
        names.sort();
        assert_eq!(names, ["eth0", "flannel.1", "lo", "peer0"]);

        ns.netlink.delete_link(index).await.expect("deleted");
        assert_eq!(
            ns.netlink
                .link_by_name("flannel.1")
                .await
                .expect("a lookup"),
            None
        );
        assert_eq!(
            ns.netlink.link_by_index(index).await.expect("a lookup"),
            None
        );
        let again = ns.netlink.delete_link(index).await.expect_err("gone");
        assert!(again.is_gone(), "{again:?}");
    });
}

#[test]
fn a_veth_and_a_bridge_port_say_what_they_belong_to() {
    in_namespace(async |ns| {
        ip("link add br0 type bridge");
        ip("link set eth0 master br0");
        let (eth0, peer0, br0) = (
            ns.link("eth0").await,
            ns.link("peer0").await,
            ns.link("br0").await,
        );
        assert_eq!(eth0.controller, Some(br0.index));
        assert_eq!((eth0.lower, eth0.netns), (Some(peer0.index), None));
        assert_eq!(eth0.max_mtu, Some(65535));
        assert!(ns.link("lo").await.loopback);
    });
}

#[test]
fn addresses_are_added_once_and_deleted_once() {
    in_namespace(async |ns| {
        let ifindex = ns.flannel_1().await;
        for (text, prefix_len) in [("10.5.1.0", 32), ("fd00:10:5::", 128)] {
            let key = AddressKey {
                ifindex,
                addr: addr(text),
                prefix_len,
            };
            ns.netlink.add_address(key).await.expect("added");
            let tentative = ip_json("addr show dev flannel.1 tentative scope global");
            assert!(
                tentative.iter().all(|link| link["addr_info"].is_null()),
                "{text} waits: {tentative:?}"
            );
            ns.netlink.add_address(key).await.expect("there already");
            let shown = ip_json("addr show dev flannel.1");
            let shown = shown[0]["addr_info"].as_array().expect("addresses").iter();
            let found: Vec<_> = shown.filter(|info| info["local"] == text).collect();
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(
                (found[0]["scope"].as_str(), found[0]["broadcast"].as_str()),
                (Some("global"), None)
            );

            let all = ns.netlink.addresses().await.expect("addresses");
            let read = all
                .iter()
                .find(|address| address.key == key)
                .expect("in the dump");
            assert!(read.is_permanent() && !read.is_deprecated() && !read.is_temporary());

            ns.netlink.del_address(key).await.expect("deleted");
            let again = ns.netlink.del_address(key).await.expect_err("gone");
            assert!(again.is_gone(), "{again:?}");
        }
    });
}

#[test]
fn a_point_to_point_address_is_the_host_s_own() {
    in_namespace(async |ns| {
        ip("addr add 10.20.0.1 peer 10.20.0.2/32 dev eth0");
        let all = ns.netlink.addresses().await.expect("addresses");
        assert!(
            all.iter()
                .any(|address| address.key.addr == addr("10.20.0.1"))
        );
        assert!(
            !all.iter()
                .any(|address| address.key.addr == addr("10.20.0.2"))
        );
    });
}

/// The features of a fresh device are what gates of packets that skip it go by.
#[test]
fn features_of_a_device_are_read_and_their_change_is_announced() {
    in_namespace(async |mut ns| {
        let index = ns.flannel_1().await;
        let ethtool = EthtoolNetlink::connect().await.expect("the protocol");
        let wanted = async |feature| {
            ethtool
                .features(index)
                .await
                .expect("features")
                .is_wanted(feature)
        };
        for feature in [
            "tx-checksum-ip-generic",
            "tx-scatter-gather",
            "tx-tcp-segmentation",
            "rx-gro",
        ] {
            assert_eq!(wanted(feature).await, Some(true), "{feature}");
        }
        assert_eq!(wanted("rx-gro-list").await, Some(false));
        assert_eq!(wanted("tx-lockless").await, None, "it cannot be switched");
        while ns.events.try_next().is_some() {}
        run("ethtool", "-K flannel.1 tx-checksum-ip-generic off");
        // Addresses of the device may get ready in between.
        until(
            &mut ns,
            |event| matches!(event, KernelEvent::Link(link) if link.index == index),
        )
        .await;
        assert_eq!(wanted("tx-checksum-ip-generic").await, Some(false));
        assert_eq!(
            wanted("tx-tcp-segmentation").await,
            Some(true),
            "off, because it depends on the other"
        );
        ethtool
            .set_feature(index, "tx-checksum-ip-generic", true)
            .await
            .expect("switched on");
        assert_eq!(wanted("tx-checksum-ip-generic").await, Some(true));
        ethtool
            .set_feature(index, "tx-checksum-ip-generic", false)
            .await
            .expect("switched off");
        assert_eq!(wanted("tx-checksum-ip-generic").await, Some(false));
        assert_eq!(
            wanted("tx-scatter-gather").await,
            Some(true),
            "no other feature changes"
        );
        let read = ethtool.features(9_999).await;
        assert!(read.expect_err("no such device").is_gone());
        let set = ethtool.set_feature(9_999, "rx-gro", false).await;
        assert!(set.expect_err("no such device").is_gone());
    });
}

#[test]
fn an_alias_of_a_device_is_set_read_and_removed() {
    in_namespace(async |ns| {
        let index = ns.flannel_1().await;
        let alias = async || {
            ns.netlink
                .link_by_index(index)
                .await
                .expect("a link")
                .expect("flannel.1")
                .alias
        };
        assert_eq!(alias().await, None);
        ns.netlink
            .set_alias(index, "made by a test")
            .await
            .expect("set");
        assert_eq!(alias().await.as_deref(), Some("made by a test"));
        ns.netlink.set_alias(index, "").await.expect("removed");
        assert_eq!(alias().await, None);
    });
}

#[test]
fn limits_of_a_device_are_read() {
    in_namespace(async |ns| {
        ns.vxlan("10.9.0.1").await;
        ip("link set flannel.1 gso_max_size 30000 gso_max_segs 7");
        let limits = ns.link("flannel.1").await.limits;
        assert_eq!(
            (limits.gso_max_size, limits.gso_max_segs),
            (Some(30_000), Some(7))
        );
        assert!(
            limits.tso_max_size.is_none_or(|bound| bound >= 65_536),
            "{limits:?}"
        );
    });
}
