//! Destinations that are exempt from masquerade, and one family without it.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_host::family::Family;
use flannel_tests::{eventually, throughout};
use flannel_traffic::Engine::{self, Iptables, Nftables};

use super::support::{Cluster, Talk, of, of_a, of_b, of_c, outside, seen};

/// The router and `b` as single addresses and as a prefix. `c`, on the other segment, is not
/// exempt.
const EXEMPT: [&str; 2] = [
    "--ip-masq-exclude=192.168.1.1,192.168.1.12",
    "--ip-masq-exclude=2001:db8:1::1,2001:db8:1::12/128",
];
/// Mode `fast` takes a flow from its second packet on, and has the kernel see one every 2 s.
const LONGER_THAN_A_REFRESH: Duration = Duration::from_secs(3);

fn exempt_destinations_see_the_pod(name: &str, engine: Engine) -> Result<()> {
    let flags = [
        &["--ip-masq", "--iptables-resync=1", "--datapath=fast"][..],
        &EXEMPT,
    ]
    .concat();
    let mut cluster = Cluster::new(name, engine, &flags)?;
    for mode in ["kernel", "fast"] {
        cluster.a.set_mode(mode)?;
        for family in Family::BOTH {
            sources_hold(&cluster, family, mode)?;
        }
    }
    ensure!(
        cluster.a.status()?["traffic"]["repairs"] == 0,
        "what was written is what is found"
    );
    let flush = match engine {
        Iptables => [
            "iptables -t nat -F FLANNEL-POSTRTG",
            "ip6tables -t nat -F FLANNEL-POSTRTG",
        ],
        Nftables => [
            "nft flush chain ip flannel-ipv4 postrtg",
            "nft flush chain ip6 flannel-ipv6 postrtg",
        ],
    };
    for line in flush {
        cluster.net.a.sh(line)?;
    }
    for family in Family::BOTH {
        eventually("the repair", Duration::from_secs(10), || {
            let from = seen(&cluster.near, None, &cluster.net.c, of_c(family))?;
            ensure!(from == of_a(family), "seen as {from}");
            Ok(())
        })?;
        assert_eq!(
            seen(&cluster.near, None, &cluster.net.r, outside(family))?,
            of(&cluster.near, family)?
        );
    }
    cluster.replace(&["--ip-masq"])?;
    cluster.masquerades()
}

fn sources_hold(cluster: &Cluster, family: Family, mode: &str) -> Result<()> {
    let Cluster { net, near, .. } = cluster;
    let pod = of(near, family)?;
    for (host, at, expected) in [
        (&*net.r, outside(family), pod),
        (&net.b, of_b(family), pod),
        (&net.c, of_c(family), of_a(family)),
    ] {
        let talk = Talk::open(near, None, host, at)?;
        throughout(
            &format!("{mode}: the source at {at}"),
            LONGER_THAN_A_REFRESH,
            || {
                let from = talk.exchange()?;
                ensure!(from == expected, "seen as {from}, not {expected}");
                Ok(())
            },
        )?;
    }
    Ok(())
}

#[test]
fn iptables_leave_exempt_destinations_alone() -> Result<()> {
    exempt_destinations_see_the_pod("exemptipt", Iptables)
}

#[test]
fn nftables_leave_exempt_destinations_alone() -> Result<()> {
    exempt_destinations_see_the_pod("exemptnft", Nftables)
}

#[test]
fn one_family_is_masqueraded_alone() -> Result<()> {
    for (name, engine) in [("onefamipt", Iptables), ("onefamnft", Nftables)] {
        let mut cluster = Cluster::new(name, engine, &["--ip-masq=ipv4"])?;
        for (flag, masqueraded) in [(None, Family::V4), (Some("--ip-masq=ipv6"), Family::V6)] {
            if let Some(flag) = flag {
                cluster.replace(&[flag])?;
            }
            for family in Family::BOTH {
                let expected = if family == masqueraded {
                    of_a(family)
                } else {
                    of(&cluster.near, family)?
                };
                assert_eq!(
                    seen(&cluster.near, None, &cluster.net.r, outside(family))?,
                    expected,
                    "{name} {flag:?}"
                );
            }
            ensure!(
                cluster.net.a.subnet_env()?.ipmasq,
                "the CNI plugin leaves masquerade to the agent"
            );
            let shown = cluster.a.status()?["traffic"]["masquerade_families"].clone();
            assert_eq!(shown, serde_json::json!([masqueraded.to_string()]));
        }
    }
    Ok(())
}
