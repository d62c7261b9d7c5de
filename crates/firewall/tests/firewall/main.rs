//! The catalogue of firewall rules against real tools and the kernel.
//!
//! Every rule of `iptables.txt`, `ebtables.txt` and `nft.txt` is installed in a separate chain, in
//! a network namespace of the test, and read back by the agent's reader. The test prints the rules
//! that this machine cannot install; for those of iptables and ebtables unit tests have the text.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use flannel_firewall::{PerPacket, Ruleset};
use nix::{
    sched::{CloneFlags, unshare},
    unistd::geteuid,
};

use crate::{
    cases::{Case, named},
    not_run::not_run,
};

mod cases;
#[path = "../../../../tests/support/not_run.rs"]
mod not_run;
mod scale;
mod services;

const IPTABLES: &str = include_str!("iptables.txt");
const EBTABLES: &str = include_str!("ebtables.txt");
const NFT: &str = include_str!("nft.txt");
const OBJECTS: &str = include_str!("nft-objects.txt");

/// The port of the tunnel.
const PORT: u16 = 8472;
/// Names of nft for extensions that iptables-nft translates.
const TRANSLATED: [(&str, &str); 6] = [
    ("LOG", "log"),
    ("NFLOG", "log"),
    ("TRACE", "set meta nftrace"),
    ("length", "meta length"),
    ("statistic", "meta random"),
    ("statistic", "numgen"),
];

/// Runs `test` in a separate network namespace, if the tools are installed.
fn in_namespace(tools: &[&str], test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return not_run("a test in a network namespace", "it needs root");
    }
    if let Some(missing) = tools
        .iter()
        .find(|tool| !Path::new("/usr/sbin").join(tool).exists())
    {
        return not_run(
            "rules of the catalogue",
            &format!("{missing} is not installed"),
        );
    }
    let in_its_own_namespace = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may unshare");
        feed("ip link set lo up", "").expect("the loopback");
        test();
    };
    if let Err(panic) = thread::spawn(in_its_own_namespace).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a line of shell with `input`; the first line of what it says if it fails.
fn feed(line: &str, input: &str) -> Result<(), String> {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("its end");
    let message = String::from_utf8_lossy(&output.stderr)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(message)
    }
}

fn read() -> Ruleset {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (rules, errors) = runtime.block_on(Ruleset::read(Some(PORT)));
    assert_eq!(errors, Vec::<String>::new());
    rules
}

/// Installs the cases, each in a chain, reads them back and compares.
///
/// `chain` is the family and table of a case, `install` installs it in the chain of this name.
fn compare(
    tool: &str,
    cases: &[Case<'_>],
    table: impl Fn(&Case<'_>) -> String,
    install: impl Fn(&Case<'_>, &str) -> Result<(), String>,
) {
    let name = |number: usize| format!("case{number}");
    let mut installed = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        match install(case, &name(number)) {
            Ok(()) => installed.push((name(number), case)),
            Err(why) => not_run(&format!("{tool}: {}: {}", case.entry, case.rule), &why),
        }
    }
    assert!(
        !installed.is_empty(),
        "{tool}: no rule at all can be installed"
    );
    let rules = read();
    let found = rules.per_packet();
    let wrong: Vec<String> = installed
        .iter()
        .filter_map(|(chain, case)| {
            assert!(rules.has_chain(chain), "{tool}: {} was not read", case.rule);
            let seen = seen(&found, &format!("{} {chain}", table(case)), case);
            (!is_as_said(case.named, &seen)).then(|| {
                format!(
                    "{}: {}: {:?}, not {seen:?}",
                    case.entry, case.rule, case.named
                )
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{tool}: {}", wrong.join("\n"));
    println!("{tool}: {} of {} rules", installed.len(), cases.len());
}

/// A chain that is called by the case is named instead of the caller.
fn seen(found: &[PerPacket], chain: &str, case: &Case<'_>) -> String {
    if case.rule == "jump limited" {
        named(found, "inet t limited")
    } else {
        named(found, chain)
    }
}

fn is_as_said(said: &str, seen: &str) -> bool {
    said == seen || TRANSLATED.contains(&(said, seen))
}

fn iptables(variant: &'static str) {
    let tools = if variant == "nft" {
        ["iptables-nft", "ip6tables-nft"]
    } else {
        ["iptables-legacy", "ip6tables-legacy"]
    };
    in_namespace(&tools, move || {
        let table = |case: &Case<'_>| format!("{} {}", case.place[0], case.place[1]);
        compare(
            &format!("iptables-{variant}"),
            &cases::read(IPTABLES),
            table,
            |case, chain| {
                let [family, table, hook] = case.place[..] else {
                    panic!("{}", case.entry)
                };
                let base = if family == "ip" {
                    "iptables"
                } else {
                    "ip6tables"
                };
                let input = format!(
                    "*{table}\n:{chain} - [0:0]\n-A {chain} {}\n-A {hook} -j {chain}\nCOMMIT\n",
                    case.rule
                );
                feed(&format!("{base}-{variant}-restore -w 10 --noflush"), &input)
            },
        );
    });
}

#[test]
fn rules_of_iptables_nft_are_read_as_they_are() {
    iptables("nft");
}

#[test]
fn rules_of_iptables_legacy_are_read_as_they_are() {
    iptables("legacy");
}

#[test]
fn rules_of_ebtables_are_read_as_they_are() {
    for tool in ["ebtables-nft", "ebtables-legacy"] {
        in_namespace(&[tool], move || {
            let table = |case: &Case<'_>| format!("bridge {}", case.place[0]);
            compare(tool, &cases::read(EBTABLES), table, |case, chain| {
                let [table, hook] = case.place[..] else {
                    panic!("{}", case.entry)
                };
                let ebtables = format!("{tool} -t {table}");
                let made = feed(
                    &format!(
                        "{ebtables} -N {chain} && {ebtables} -A {chain} {}",
                        case.rule
                    ),
                    "",
                );
                made.and_then(|()| feed(&format!("{ebtables} -A {hook} -j {chain}"), ""))
            });
        });
    }
}

#[test]
fn rules_of_nft_are_read_as_they_are() {
    in_namespace(&["nft"], || {
        for object in OBJECTS.lines() {
            if let Err(why) = feed("nft -f -", object) {
                not_run(&format!("nft: {object}"), &why);
            }
        }
        let table = |case: &Case<'_>| format!("{} t", case.place[0]);
        compare("nft", &cases::read(NFT), table, |case, chain| {
            let [family, hook] = case.place[..] else {
                panic!("{}", case.entry)
            };
            let hooked = match hook {
                "nat-prerouting" => "type nat hook prerouting priority -100".to_owned(),
                "nat-postrouting" => "type nat hook postrouting priority 100".to_owned(),
                "ingress" => "type filter hook ingress device \"lo\" priority 0".to_owned(),
                hook => format!("type filter hook {hook} priority 0"),
            };
            feed(
                "nft -f -",
                &format!(
                    "table {family} t {{\nchain {chain} {{\n{hooked};\n{}\n}}\n}}\n",
                    case.rule
                ),
            )
        });
    });
}

/// Loads a script, and returns what judges single packets and what names the tunnel's port.
fn judged(script: &str) -> (Vec<String>, Vec<(String, bool)>) {
    feed("nft flush ruleset && nft -f -", script).expect("a script");
    let rules = read();
    let chains = rules.per_packet().iter().map(ToString::to_string).collect();
    (chains, rules.at_port().into_iter().collect())
}

#[test]
fn jumps_are_followed_from_hooks_that_see_each_packet() {
    in_namespace(&["nft"], || {
        let script = "table ip t {
            chain both { log; }
            chain by-map { limit rate 5/second; }
            map verdicts { type mark : verdict; elements = { 1 : jump by-map }; }
            chain n { type nat hook prerouting priority 0; jump both; }
            chain f { type filter hook forward priority 0; meta mark vmap @verdicts; JUMP; }
        }";
        let by_map = "ip t by-map (limit)".to_owned();
        let (found, _) = judged(&script.replace("JUMP", "jump both"));
        assert_eq!(found, ["ip t both (log)".to_owned(), by_map.clone()]);
        let (found, _) = judged(&script.replace("JUMP", "meta mark vmap { 5 : goto both }"));
        assert_eq!(found.len(), 2, "{found:?}");
        let (found, _) = judged(&script.replace("JUMP", "meta l4proto icmp jump both"));
        assert_eq!(found, std::slice::from_ref(&by_map));
        let (found, _) = judged(&script.replace("JUMP;", ""));
        assert_eq!(found, [by_map]);
    });
}

#[test]
fn chains_of_devices_and_the_tunnels_port_are_named() {
    in_namespace(&["nft"], || {
        let script = "table netdev t {
            chain c { type filter hook ingress devices = { lo } priority 0; limit rate 5/second; }
        }
        table inet t {
            chain i \
            { type filter hook input priority 0; policy drop; udp dport 8472 accept; jump c; }
            chain c { udp dport 8000-9000 drop; }
            chain o { type nat hook output priority 0; udp dport { 53, 8472 } accept; }
            chain never { udp dport 8472 drop; }
        }";
        let (found, at_port) = judged(script);
        assert_eq!(found, ["netdev t c on lo (limit)"]);
        let named = [("inet t c", true), ("inet t i", false), ("inet t o", false)];
        assert_eq!(
            at_port,
            named.map(|(chain, drops)| (chain.to_owned(), drops))
        );
        assert_eq!(read().dropping_policies("input"), ["inet t i"]);
    });
}

#[test]
fn chains_that_drop_forwarded_packets_are_named_unless_a_rule_in_front_may_accept_some() {
    in_namespace(&["nft"], || {
        let closed = |rules: &str| {
            let hook = "type filter hook forward priority 0";
            judged(&format!(
                "table inet t {{\nchain c {{ drop; }}\nchain f {{ {hook}; {rules} }}\n}}"
            ));
            read().closed_forward()
        };
        let none: [&str; 0] = [];
        for drops in [
            "drop;",
            "counter drop;",
            "reject with icmpx admin-prohibited;",
            "policy drop;",
        ] {
            assert_eq!(closed(drops), ["inet t f"], "{drops}");
        }
        assert_eq!(closed("jump c;"), ["inet t c"]);
        for spares in [
            "ct state invalid drop;",
            "iifname eth1 drop;",
            "ip saddr 10.244.0.0/16 accept; drop;",
            "meta mark vmap { 1 : accept }; drop;",
            "meta mark 1 jump c;",
        ] {
            assert_eq!(closed(spares), none, "{spares}");
        }
    });
}
