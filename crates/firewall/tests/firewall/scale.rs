//! Rules of other programs by the thousand: the agent's readers keep only what they are asked for.

use std::{fmt::Write as _, fs, net::IpAddr, time::Instant};

use flannel_firewall::{
    Watch,
    services::{self, Service},
};
use flannel_host::family::Family;

use super::{feed, in_namespace};

/// Services, each with three endpoints.
const SERVICES: u32 = 1000;
const ENDPOINTS: u32 = 3;
/// The most memory that a reading may leave behind, in KiB. As JSON these rules took 40 MB.
const MOST_MEMORY: u64 = 16 << 10;

/// Rules as kube-proxy 1.34 writes them in mode `nftables`.
fn nftables() -> String {
    let mut text = "table ip kube-proxy {
        chain mark-for-masquerade { mark set mark or 0x4000; }
        chain masquerading \
        { mark and 0x4000 == 0 return; mark set mark xor 0x4000; masquerade fully-random; }\n"
        .to_owned();
    let mut elements = Vec::new();
    for service in 0..SERVICES {
        let address = format!("10.96.{}.{}", service / 250, service % 250);
        let mut verdicts = Vec::new();
        for endpoint in 0..ENDPOINTS {
            let to = format!(
                "10.244.{}.{}",
                service / 80,
                service % 80 * ENDPOINTS + endpoint
            );
            let name = format!("endpoint-{service}-{endpoint}");
            let rules = format!(
                "ip saddr {to} jump mark-for-masquerade; meta l4proto tcp dnat to {to}:8080;"
            );
            writeln!(text, "chain {name} {{ {rules} }}").expect("to a string");
            verdicts.push(format!("{endpoint} : goto {name}"));
        }
        let marked = "ip saddr != 10.244.0.0/16 jump mark-for-masquerade";
        let choice = format!(
            "numgen random mod {ENDPOINTS} vmap {{ {} }}",
            verdicts.join(", ")
        );
        writeln!(
            text,
            "chain service-{service} {{ ip daddr {address} tcp dport 80 {marked}; {choice}; }}"
        )
        .expect("to a string");
        elements.push(format!(
            "{address} . tcp . 80 comment \"ns/svc{service}:http\" : goto service-{service}"
        ));
    }
    text + &format!(
        "map service-ips {{
            type ipv4_addr . inet_proto . inet_service : verdict
            elements = {{ {} }}
        }}
        map no-endpoint-services {{ type ipv4_addr . inet_proto . inet_service : verdict; }}
        chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}
        chain cluster-ips-check {{ ip daddr 10.96.255.255 reject; }}
        chain filter-forward {{ type filter hook forward priority -110; ct state new jump \
        cluster-ips-check; }}
        chain nat-prerouting {{ type nat hook prerouting priority -100; jump services; }}
        chain nat-output {{ type nat hook output priority -100; jump services; }}
        chain nat-postrouting {{ type nat hook postrouting priority 100; jump masquerading; }}
        }}
        table ip own {{
        chain f {{ type filter hook forward priority 0; limit rate 5/second; }}
        }}\n",
        elements.join(", ")
    )
}

/// The same in mode `iptables`.
fn iptables() -> String {
    let mut chains = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n".to_owned();
    let mut rules =
        "-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-MARK-MASQ -j MARK \
         --set-xmark 0x4000/0x4000\n"
            .to_owned();
    for service in 0..SERVICES {
        let address = format!("10.96.{}.{}", service / 250, service % 250);
        writeln!(chains, ":KUBE-SVC-{service} - [0:0]").expect("to a string");
        let named = format!("-m comment --comment \"ns/svc{service}:http\"");
        writeln!(
            rules,
            "-A KUBE-SERVICES -d {address}/32 -p tcp {named} -m tcp --dport 80 -j \
            KUBE-SVC-{service}"
        )
        .expect("to a string");
        for endpoint in 0..ENDPOINTS {
            let to = format!(
                "10.244.{}.{}",
                service / 80,
                service % 80 * ENDPOINTS + endpoint
            );
            writeln!(chains, ":KUBE-SEP-{service}x{endpoint} - [0:0]").expect("to a string");
            let chance = "-m statistic --mode random --probability 0.3333";
            writeln!(
                rules,
                "-A KUBE-SVC-{service} {named} {chance} -j KUBE-SEP-{service}x{endpoint}"
            )
            .expect("to a string");
            let to = format!("-j DNAT --to-destination {to}:8080");
            writeln!(
                rules,
                "-A KUBE-SEP-{service}x{endpoint} -p tcp {named} -m tcp {to}"
            )
            .expect("to a string");
        }
    }
    format!("{chains}{rules}COMMIT\n*filter\n-A FORWARD -m limit --limit 5/sec\nCOMMIT\n")
}

/// KiB of memory of this process, by a line of its status.
fn memory(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("proc");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the line");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// Reads the rules as the agent does, and returns the chains that judge single packets.
fn watched() -> Vec<String> {
    run(async {
        let mut watch = Watch::start(false, Some(super::PORT), || {});
        watch.invalidate(true);
        watch.changed().await;
        assert_eq!(watch.error(), None);
        watch.chains()
    })
}

fn expect_small(tools: &[&str], line: &'static str, rules: fn() -> String, named: &'static str) {
    in_namespace(tools, move || {
        // The heap has what a reading needs.
        watched();
        let rules = rules();
        feed(line, &rules).expect("rules");
        drop(rules);
        let before = memory("VmRSS:");
        assert_eq!(watched(), [named]);
        let more = memory("VmRSS:").saturating_sub(before);
        println!("{SERVICES} Services by {line}: {more} KiB more");
        assert!(more < MOST_MEMORY, "{more} KiB");
        expect_services(line);
    });
}

/// One Service among them is found without the memory for all.
fn expect_services(line: &str) {
    // Five resets the peak of resident memory (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").expect("the peak");
    let before = memory("VmHWM:");
    let start = Instant::now();
    let found = services_of([10, 96, 3, 17].into());
    let (one, start) = (start.elapsed(), Instant::now());
    let names = run(services::service_names(Family::V4)).expect("the names");
    let all = start.elapsed();
    let more = memory("VmHWM:").saturating_sub(before);
    println!(
        "one of {SERVICES} Services by {line} in {one:?}, all names in {all:?}: {more} KiB at most"
    );
    assert!(more < MOST_MEMORY, "{more} KiB");
    let [service] = &found[..] else {
        panic!("{found:?}")
    };
    let ends: Vec<String> = service.endpoints.iter().map(ToString::to_string).collect();
    let number = 3 * 250 + 17;
    let expected = |endpoint| {
        format!(
            "10.244.{}.{}:8080",
            number / 80,
            number % 80 * ENDPOINTS + endpoint
        )
    };
    assert_eq!(ends, (0..ENDPOINTS).map(expected).collect::<Vec<_>>());
    let named: std::collections::BTreeSet<_> = names.iter().map(|(address, _)| address).collect();
    assert_eq!(named.len(), usize::try_from(SERVICES).expect("a number"));
}

/// The Services of an address at any port of TCP.
fn services_of(address: IpAddr) -> Vec<Service> {
    let (found, errors) = run(services::services(address, 6));
    assert_eq!(errors, Vec::<String>::new());
    found.expect("rules of kube-proxy")
}

pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

#[test]
fn services_of_nftables_are_not_kept() {
    expect_small(&["nft"], "nft -f -", nftables, "ip own f (limit)");
}

#[test]
fn services_of_iptables_nft_are_not_kept() {
    expect_small(
        &["iptables-nft"],
        "iptables-nft-restore --noflush",
        iptables,
        "ip filter FORWARD (limit)",
    );
}

#[test]
fn services_of_legacy_iptables_are_not_kept() {
    let line = "iptables-legacy-restore -w 10 --noflush";
    expect_small(
        &["iptables-legacy"],
        line,
        iptables,
        "ip filter FORWARD (limit)",
    );
}
