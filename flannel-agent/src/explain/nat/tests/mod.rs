use super::*;

/// As kube-proxy 1.33 writes it in mode iptables.
const SAVED: &str = "\
*nat
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-WEB - [0:0]
:KUBE-EXT-WEB - [0:0]
:KUBE-SEP-ONE - [0:0]
:KUBE-SEP-TWO - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 172.16.0.0/12 -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \"flanneld masq\" -j MASQUERADE --random-fully
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment \"default/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-WEB
-A KUBE-SERVICES -d 203.0.113.7/32 -p tcp -m comment --comment \"default/web:http loadbalancer IP\" -m tcp --dport 80 -j KUBE-EXT-WEB
-A KUBE-EXT-WEB -m comment --comment \"masquerade\" -j KUBE-MARK-MASQ
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
-A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m comment --comment \"default/none has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
COMMIT
";
/// As nft 1.1.3 prints what kube-proxy 1.33 writes in mode nftables.
const LISTED: &str = include_str!("kube-proxy.nft.json");
/// Flannel's table, as nft prints it.
const FLANNEL: &str = "\
table ip flannel-ipv4 {
	comment \"rules for flannel-ipv4\"
	chain postrtg {
		comment \"chain to manage traffic masquerading by flannel\"
		type nat hook postrouting priority srcnat; policy accept;
		meta mark 0x00004000 return
		ip saddr 10.244.1.0/24 ip daddr 10.244.0.0/16 return
		ip saddr != 10.244.1.0/24 ip daddr 10.244.0.0/16 return
		ip saddr 10.244.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
	}
}
";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn ask(rules: &NatRules, destination: &str, transport: Transport, dport: Option<u16>) -> ServiceAnswer {
    let question = Question { source: ip("10.244.1.2"), destination: ip(destination), transport, sport: None, dport };
    rules.service(&question)
}

fn saved() -> NatRules {
    NatRules {
        family: Some(Family::V4),
        saved: vec![("iptables-save".to_owned(), SAVED.to_owned())],
        ..NatRules::default()
    }
}

fn listed() -> NatRules {
    NatRules { proxy_table: Some(LISTED.to_owned()), ..NatRules::default() }
}

fn ends(answer: &ServiceAnswer) -> (Option<&str>, Vec<String>) {
    match answer {
        ServiceAnswer::Translated(service) => {
            (service.name.as_deref(), service.endpoints.iter().map(ToString::to_string).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_of_iptables_is_followed_to_its_endpoints() {
    let both = vec!["10.244.1.5:8080".to_owned(), "10.244.2.6:8080".to_owned()];
    for (address, port) in [("10.96.0.1", None), ("10.96.0.1", Some(80)), ("203.0.113.7", None)] {
        let answer = ask(&saved(), address, Transport::Tcp, port);
        assert_eq!(ends(&answer), (Some("default/web:http"), both.clone()), "{address}");
    }
    let empty = ask(&saved(), "10.96.0.2", Transport::Tcp, None);
    assert!(
        matches!(&empty, ServiceAnswer::Empty(service) if service.name.as_deref() == Some("default/none")),
        "{empty:?}"
    );
    assert_eq!(ask(&saved(), "10.96.0.1", Transport::Tcp, Some(443)), ServiceAnswer::Ports(vec!["tcp 80".to_owned()]));
    assert_eq!(ask(&saved(), "10.96.0.1", Transport::Udp, None), ServiceAnswer::No);
    assert_eq!(ask(&saved(), "198.51.100.1", Transport::Tcp, None), ServiceAnswer::No);
}

#[test]
fn a_service_of_nftables_is_followed_to_its_endpoints() {
    let dns = ask(&listed(), "10.96.0.10", Transport::Udp, None);
    assert_eq!(
        ends(&dns),
        (Some("kube-system/kube-dns:dns"), vec!["10.244.0.3:53".to_owned(), "10.244.1.3:53".to_owned()])
    );
    let metrics = ask(&listed(), "10.96.0.10", Transport::Tcp, Some(9153));
    assert_eq!(ends(&metrics), (Some("kube-system/kube-dns/tcp/metrics"), vec!["10.244.1.3:9153".to_owned()]));
    assert!(matches!(ask(&listed(), "10.96.0.20", Transport::Tcp, Some(80)), ServiceAnswer::Empty(_)));
    assert_eq!(ask(&listed(), "10.96.0.11", Transport::Tcp, None), ServiceAnswer::No);
}

#[test]
fn services_have_their_names_by_address() {
    let saved = saved().service_names();
    for (address, name) in [("10.96.0.1", "default/web"), ("203.0.113.7", "default/web"), ("10.96.0.2", "default/none")]
    {
        assert_eq!(saved.get(&ip(address)).map(String::as_str), Some(name), "{address}");
    }
    let listed = listed().service_names();
    assert_eq!(listed.get(&ip("10.96.0.10")).map(String::as_str), Some("kube-system/kube-dns"));
    assert!(NatRules::default().service_names().is_empty());
}

#[test]
fn without_rules_of_kube_proxy_nothing_is_known() {
    let none = NatRules::default();
    assert_eq!(ask(&none, "10.96.0.1", Transport::Tcp, None), ServiceAnswer::NoProxy);
    let failed = NatRules { errors: vec!["cannot run nft".to_owned()], ..NatRules::default() };
    assert_eq!(ask(&failed, "10.96.0.1", Transport::Tcp, None), ServiceAnswer::Unknown("cannot run nft".to_owned()));
}

fn masquerade(rules: &NatRules, destination: &str) -> MasqueradeAnswer {
    rules.masquerade(ip("10.244.1.2"), ip(destination), Some("eth0"))
}

#[test]
fn masquerade_follows_the_rules_of_either_tool() {
    let flannel = NatRules { family: Some(Family::V4), flannel_table: Some(FLANNEL.to_owned()), ..NatRules::default() };
    for rules in [saved(), flannel] {
        let yes = masquerade(&rules, "198.51.100.1");
        assert!(matches!(&yes, MasqueradeAnswer::Yes { rule } if rule.contains("224.0.0.0/4")), "{yes:?}");
        assert_eq!(masquerade(&rules, "10.244.9.9"), MasqueradeAnswer::No, "between pods");
        assert_eq!(masquerade(&rules, "224.0.0.1"), MasqueradeAnswer::No, "multicast");
    }
    assert_eq!(masquerade(&saved(), "172.16.0.1"), MasqueradeAnswer::No, "a rule of others returns");
    assert_eq!(
        masquerade(&NatRules { family: Some(Family::V4), ..NatRules::default() }, "198.51.100.1"),
        MasqueradeAnswer::No
    );
}

/// A condition that is not understood decides nothing, unless its rule could translate.
#[test]
fn a_condition_that_is_not_understood_is_named() {
    let with = |rule: &str| {
        let dump = format!("*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING {rule}\nCOMMIT\n");
        masquerade(
            &NatRules {
                saved: vec![("iptables-save".to_owned(), dump)],
                family: Some(Family::V4),
                ..NatRules::default()
            },
            "198.51.100.1",
        )
    };
    let unknown = with("-m set --match-set others dst -j MASQUERADE");
    assert!(
        matches!(&unknown, MasqueradeAnswer::Unknown(rule) if rule.contains("--match-set others dst")),
        "{unknown:?}"
    );
    assert_eq!(with("-m set --match-set others dst -j LOG"), MasqueradeAnswer::No);
    assert_eq!(with("-o eth1 -j MASQUERADE"), MasqueradeAnswer::No);
    assert!(matches!(with("-o eth0 -j SNAT --to-source 192.0.2.1"), MasqueradeAnswer::Yes { .. }));
    assert!(matches!(with("! -o eth1 -j MASQUERADE"), MasqueradeAnswer::Yes { .. }));
}
