//! The external interface, chosen on a real host.

use flannel_agent::{
    family::Family,
    iface::{Host, IfaceError, IfaceOptions, select},
};

use crate::namespace::{addr, in_namespace, ip};

#[test]
fn the_default_route_and_a_name_lead_to_the_underlay() {
    in_namespace(async |ns| {
        for (family, command, own) in [
            (Family::V4, "route add default via 10.9.0.254", "10.9.0.1"),
            (Family::V6, "-6 route add default via fd00:9::fe", "fd00:9::1"),
        ] {
            let host = Host::read(&ns.netlink, family, &IfaceOptions::default()).await.expect("the host");
            let nothing_given = select(&IfaceOptions::default(), family, &host);
            assert!(matches!(nothing_given, Err(IfaceError::NoDefaultRoute { .. })), "{nothing_given:?}");

            ip(command);
            let host = Host::read(&ns.netlink, family, &IfaceOptions::default()).await.expect("the host");
            let by_route = select(&IfaceOptions::default(), family, &host).expect("by the default route");
            assert_eq!((by_route.name.as_str(), by_route.mtu, by_route.arphrd), ("eth0", 1500, 1));
            assert_eq!((by_route.addr, by_route.public), (addr(own), addr(own)));
            let options = IfaceOptions { iface: vec!["eth0".into()], ..IfaceOptions::default() };
            assert_eq!(select(&options, family, &host).expect("by name"), by_route);
        }
    });
}
