use super::{chains::NatChains, *};

/// As kube-proxy 1.33 writes it in mode iptables.
const SAVED: &str = "\
*nat
:POSTROUTING ACCEPT [0:0]
:KUBE-POSTROUTING - [0:0]
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment \"flanneld masq\" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -m comment --comment \"flanneld masq\" -j \
RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 172.16.0.0/12 -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \"flanneld masq\" -j \
MASQUERADE --random-fully
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
COMMIT
";
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

fn service(port: u16, endpoints: &[&str]) -> Service {
    Service {
        rule: "iptables-nft-save, table nat, chain KUBE-SVC-WEB".to_owned(),
        name: Some("default/web:http".to_owned()),
        port,
        endpoints: endpoints
            .iter()
            .map(|end| end.parse().expect("an address"))
            .collect(),
    }
}

fn ask(found: &[Service], dport: Option<u16>) -> ServiceAnswer {
    let (source, destination) = (ip("10.244.1.2"), ip("10.96.0.1"));
    let question = Question {
        source,
        destination,
        transport: Transport::Tcp,
        sport: None,
        dport,
    };
    answer(Some(found.to_vec()), &[], &question)
}

#[test]
fn the_port_decides_among_the_services_of_an_address() {
    let (web, tls) = (service(80, &["10.244.1.5:8080"]), service(443, &[]));
    let both = [web.clone(), tls.clone()];
    assert_eq!(ask(&both, Some(80)), ServiceAnswer::Translated(web.clone()));
    assert_eq!(ask(&both, Some(443)), ServiceAnswer::Empty(tls));
    assert_eq!(
        ask(&both, None),
        ServiceAnswer::Ports(vec!["tcp 80".to_owned(), "tcp 443".to_owned()])
    );
    assert_eq!(
        ask(std::slice::from_ref(&web), None),
        ServiceAnswer::Translated(web)
    );
    assert_eq!(
        ask(&both, Some(53)),
        ServiceAnswer::Ports(vec!["tcp 80".to_owned(), "tcp 443".to_owned()])
    );
    assert_eq!(ask(&[], Some(80)), ServiceAnswer::No);
}

#[test]
fn a_name_has_no_port() {
    for name in ["default/web:http", "default/web/tcp/http", "default/web"] {
        assert_eq!(without_port(name).as_deref(), Some("default/web"), "{name}");
    }
    assert_eq!(without_port("web"), None);
}

#[test]
fn without_rules_of_kube_proxy_the_answer_says_so() {
    let (source, destination) = (ip("10.244.1.2"), ip("10.96.0.1"));
    let question = Question {
        source,
        destination,
        transport: Transport::Tcp,
        sport: None,
        dport: None,
    };
    assert_eq!(answer(None, &[], &question), ServiceAnswer::NoProxy);
    let failed = answer(None, &["cannot read".to_owned()], &question);
    assert_eq!(failed, ServiceAnswer::Unknown("cannot read".to_owned()));
}

/// The answer by a dump of iptables.
fn saved(dump: &str, destination: &str) -> MasqueradeAnswer {
    let mut chains = NatChains::parse(dump);
    masquerade::by_iptables(
        "iptables-save",
        &mut chains,
        ip("10.244.1.2"),
        ip(destination),
        Some("eth0"),
    )
}

fn listed(destination: &str) -> MasqueradeAnswer {
    masquerade::by_nftables(FLANNEL, Family::V4, ip("10.244.1.2"), ip(destination))
}

#[test]
fn masquerade_follows_the_rules_of_either_tool() {
    for answer in [|destination: &str| saved(SAVED, destination), listed] {
        let yes = answer("198.51.100.1");
        assert!(
            matches!(&yes, MasqueradeAnswer::Yes { rule } if rule.contains("224.0.0.0/4")),
            "{yes:?}"
        );
        assert_eq!(answer("10.244.9.9"), MasqueradeAnswer::No, "between pods");
        assert_eq!(answer("224.0.0.1"), MasqueradeAnswer::No, "multicast");
    }
    assert_eq!(
        saved(SAVED, "172.16.0.1"),
        MasqueradeAnswer::No,
        "a rule of others returns"
    );
}

#[test]
fn one_listing_that_translates_decides() {
    let yes = MasqueradeAnswer::Yes {
        rule: "a rule".to_owned(),
    };
    let unknown = MasqueradeAnswer::Unknown("another".to_owned());
    assert_eq!(
        decide(&[unknown.clone(), yes.clone()], &["failed".to_owned()]),
        yes
    );
    assert_eq!(
        decide(&[MasqueradeAnswer::No, unknown.clone()], &[]),
        unknown
    );
    assert_eq!(
        decide(&[MasqueradeAnswer::No], &["failed".to_owned()]),
        MasqueradeAnswer::Unknown("failed".to_owned())
    );
    assert_eq!(decide(&[], &[]), MasqueradeAnswer::No);
}

/// A condition that is not understood decides nothing, unless its rule could translate.
#[test]
fn a_condition_that_is_not_understood_is_named() {
    let with = |rule: &str| {
        saved(
            &format!("*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING {rule}\nCOMMIT\n"),
            "198.51.100.1",
        )
    };
    let unknown = with("-m set --match-set others dst -j MASQUERADE");
    assert!(
        matches!(&unknown, MasqueradeAnswer::Unknown(rule) if rule.contains("--match-set others \
            dst")),
        "{unknown:?}"
    );
    assert_eq!(
        with("-m set --match-set others dst -j LOG"),
        MasqueradeAnswer::No
    );
    assert_eq!(with("-o eth1 -j MASQUERADE"), MasqueradeAnswer::No);
    assert!(matches!(
        with("-o eth0 -j SNAT --to-source 192.0.2.1"),
        MasqueradeAnswer::Yes { .. }
    ));
    assert!(matches!(
        with("! -o eth1 -j MASQUERADE"),
        MasqueradeAnswer::Yes { .. }
    ));
}
