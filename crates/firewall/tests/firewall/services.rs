//! Rules of kube-proxy by real tools: Services are followed to their endpoints.

use std::net::IpAddr;

use flannel_firewall::services::{self, Service};
use flannel_host::family::Family;

use super::{feed, in_namespace, scale::run};

/// As kube-proxy 1.33 writes it in mode iptables.
const IPTABLES: &str = r#"*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-WEB - [0:0]
:KUBE-EXT-WEB - [0:0]
:KUBE-SEP-ONE - [0:0]
:KUBE-SEP-TWO - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-WEB
-A KUBE-SERVICES -d 203.0.113.7/32 -p tcp -m comment --comment "default/web:http loadbalancer IP" -m tcp --dport 80 -j KUBE-EXT-WEB
-A KUBE-SERVICES ! -s 10.244.0.0/16 -d 10.96.0.4/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-EXT-WEB -m comment --comment "masquerade" -j KUBE-MARK-MASQ
-A KUBE-EXT-WEB -j KUBE-SVC-WEB
-A KUBE-SVC-WEB ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-WEB -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-ONE
-A KUBE-SVC-WEB -j KUBE-SEP-TWO
-A KUBE-SEP-ONE -s 10.244.1.5/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-ONE -p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080
-A KUBE-SEP-TWO -p tcp -m tcp -j DNAT --to-destination 10.244.2.6:8080
COMMIT
*filter
:KUBE-SERVICES - [0:0]
-A FORWARD -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m comment --comment "default/none has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
COMMIT
"#;
const IP6TABLES: &str = r#"*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-DNS - [0:0]
-A KUBE-SERVICES -d fd00:96::a/128 -p udp -m comment --comment "kube-system/kube-dns:dns cluster IP" -m udp --dport 53 -j KUBE-SVC-DNS
-A KUBE-SVC-DNS -p udp -m udp -j DNAT --to-destination [fd00:244::3]:53
COMMIT
"#;
/// As kube-proxy 1.33 writes it in mode nftables.
const NFTABLES: &str = r#"table ip kube-proxy {
    chain mark-for-masquerade { mark set mark or 0x4000; }
    chain reject-chain { reject; }
    chain endpoint-A-kube-system/kube-dns/udp/dns__10.244.0.3/53 { ip saddr 10.244.0.3 jump mark-for-masquerade; meta l4proto udp dnat to 10.244.0.3:53; }
    chain endpoint-B-kube-system/kube-dns/udp/dns__10.244.1.3/53 { meta l4proto udp dnat to 10.244.1.3:53; }
    chain endpoint-C { meta l4proto tcp dnat to 10.244.1.3:9153; }
    chain service-FY5MPXPG-kube-system/kube-dns/udp/dns {
        ip daddr 10.96.0.10 udp dport 53 ip saddr != 10.244.0.0/16 jump mark-for-masquerade
        numgen random mod 2 vmap { 1 : goto endpoint-B-kube-system/kube-dns/udp/dns__10.244.1.3/53, 0 : goto endpoint-A-kube-system/kube-dns/udp/dns__10.244.0.3/53 }
    }
    chain service-AS2KJYAD-kube-system/kube-dns/tcp/metrics { numgen random mod 1 vmap { 0 : goto endpoint-C }; }
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.10 . udp . 53 comment "kube-system/kube-dns:dns" : goto service-FY5MPXPG-kube-system/kube-dns/udp/dns,
                     10.96.0.10 . tcp . 9153 : goto service-AS2KJYAD-kube-system/kube-dns/tcp/metrics }
    }
    map no-endpoint-services {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.20 . tcp . 80 comment "default/empty:http" : goto reject-chain }
    }
}
"#;

const TCP: u8 = 6;
const UDP: u8 = 17;

fn found(address: &str, protocol: u8) -> Option<Vec<Service>> {
    let (found, errors) = run(services::services(ip(address), protocol));
    assert_eq!(errors, Vec::<String>::new());
    found
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn service(rule: &str, name: &str, port: u16, endpoints: &[&str]) -> Service {
    let endpoints = endpoints
        .iter()
        .map(|end| end.parse().expect("an end"))
        .collect();
    Service {
        rule: rule.to_owned(),
        name: Some(name.to_owned()),
        port,
        endpoints,
    }
}

fn iptables(variant: &'static str) {
    let tools = if variant == "nft" {
        ["iptables-nft", "ip6tables-nft"]
    } else {
        ["iptables-legacy", "ip6tables-legacy"]
    };
    in_namespace(&tools, move || {
        assert_eq!(found("10.96.0.1", TCP), None, "no rules");
        for (base, rules) in [("iptables", IPTABLES), ("ip6tables", IP6TABLES)] {
            feed(&format!("{base}-{variant}-restore -w 10 --noflush"), rules).expect("rules");
        }
        let tool = format!("iptables-{variant}-save");
        let both = ["10.244.1.5:8080", "10.244.2.6:8080"];
        let web = |chain: &str| {
            service(
                &format!("{tool}, table nat, chain {chain}"),
                "default/web:http",
                80,
                &both,
            )
        };
        assert_eq!(found("10.96.0.1", TCP), Some(vec![web("KUBE-SVC-WEB")]));
        assert_eq!(found("203.0.113.7", TCP), Some(vec![web("KUBE-EXT-WEB")]));
        let empty = service(
            &format!("{tool}, table filter, chain KUBE-SERVICES"),
            "default/none",
            80,
            &[],
        );
        assert_eq!(found("10.96.0.2", TCP), Some(vec![empty]));
        for (address, protocol) in [
            ("10.96.0.1", UDP),
            ("198.51.100.1", TCP),
            ("10.96.0.4", TCP),
        ] {
            assert_eq!(
                found(address, protocol),
                Some(Vec::new()),
                "{address} {protocol}"
            );
        }
        let dns = format!("ip6tables-{variant}-save, table nat, chain KUBE-SVC-DNS");
        let dns = service(&dns, "kube-system/kube-dns:dns", 53, &["[fd00:244::3]:53"]);
        assert_eq!(found("fd00:96::a", UDP), Some(vec![dns]));
        let mut names = run(services::service_names(Family::V4)).expect("the names");
        names.sort();
        let expected = [
            ("10.96.0.1", "default/web:http"),
            ("10.96.0.2", "default/none"),
            ("203.0.113.7", "default/web:http"),
        ];
        assert_eq!(
            names,
            expected.map(|(address, name)| (ip(address), name.to_owned()))
        );
    });
}

#[test]
fn services_of_iptables_nft_are_followed_to_their_endpoints() {
    iptables("nft");
}

#[test]
fn services_of_legacy_iptables_are_followed_to_their_endpoints() {
    iptables("legacy");
}

#[test]
fn services_of_nftables_are_followed_to_their_endpoints() {
    in_namespace(&["nft"], || {
        assert_eq!(found("10.96.0.10", UDP), None, "no rules");
        feed("nft -f -", NFTABLES).expect("rules");
        let rule = |map: &str, chain: &str| {
            format!("nftables, table kube-proxy, map {map} to chain {chain}")
        };
        let dns = rule(
            "service-ips",
            "service-FY5MPXPG-kube-system/kube-dns/udp/dns",
        );
        let dns = service(
            &dns,
            "kube-system/kube-dns:dns",
            53,
            &["10.244.0.3:53", "10.244.1.3:53"],
        );
        assert_eq!(found("10.96.0.10", UDP), Some(vec![dns]));
        let metrics = rule(
            "service-ips",
            "service-AS2KJYAD-kube-system/kube-dns/tcp/metrics",
        );
        let metrics = service(
            &metrics,
            "kube-system/kube-dns/tcp/metrics",
            9153,
            &["10.244.1.3:9153"],
        );
        assert_eq!(found("10.96.0.10", TCP), Some(vec![metrics]));
        let empty = service(
            &rule("no-endpoint-services", "reject-chain"),
            "default/empty:http",
            80,
            &[],
        );
        assert_eq!(found("10.96.0.20", TCP), Some(vec![empty]));
        assert_eq!(found("10.96.0.11", TCP), Some(Vec::new()));
        let names = run(services::service_names(Family::V4)).expect("the names");
        assert!(
            names.contains(&(ip("10.96.0.20"), "default/empty:http".to_owned())),
            "{names:?}"
        );
        assert_eq!(names.len(), 3);
    });
}
