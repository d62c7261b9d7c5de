//! Filter and rate limit.

use core::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn network(text: &str, prefix_len: u8) -> Network {
    Network::new(text.parse().expect("an address"), prefix_len)
}

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().expect("an address").into()
}

#[test]
fn a_lease_holds_until_it_ends() {
    assert!(lease_holds(5 + LEASE_NS, 5) && lease_holds(5, 5));
    assert!(!lease_holds(5, 6), "over");
    assert!(
        lease_holds(6 + LEASE_NS, 5),
        "renewed since the clock was read"
    );
    assert!(
        !lease_holds(6 + LEASE_NS + SKEW_NS, 5),
        "no monitor wrote that"
    );
    assert!(!lease_holds(0, 6), "no monitor");
}

#[test]
fn networks_hold_their_addresses_and_no_others() {
    let pods = network("10.244.1.0", 24);
    assert!(pods.contains(addr("10.244.1.7")) && !pods.contains(addr("10.244.2.7")));
    assert!(
        !pods.contains(addr("::10.244.1.7")),
        "IPv6 with the same last bytes"
    );
    assert!(
        network("fd00::", 8).contains(addr("fd12::1"))
            && !network("fd00::", 8).contains(addr("fe80::1"))
    );
    let (all4, all6) = (network("0.0.0.0", 0), network("::", 0));
    assert!(
        all4.contains(addr("8.8.8.8")) && !all4.contains(addr("fd00::1")) && !all4.is_everything()
    );
    assert!(all6.is_everything() && all6.contains(addr("8.8.8.8")));
    assert!(
        network("10.0.0.1", 32).contains(addr("10.0.0.1"))
            && !network("10.0.0.1", 32).contains(addr("10.0.0.0"))
    );
}

#[test]
fn outcomes_are_wanted_by_program_and_reason() {
    let everything = Network::default();
    let filter = Filter {
        reasons: ReasonSet::default()
            .with(Reason::Replayed)
            .with(Reason::RewriteFailed),
        programs: 1 << Program::FromPod as u32,
        sample: 1,
        source: everything,
        destination: everything,
    };
    assert!(
        filter.wants(Program::FromPod, Reason::Replayed)
            && filter.wants(Program::FromPod, Reason::RewriteFailed)
    );
    assert!(
        !filter.wants(Program::FromUnderlay, Reason::Replayed)
            && !filter.wants(Program::FromPod, Reason::Sampled)
    );
    assert!(!filter.asks_for_addresses());
    assert!(
        Filter {
            destination: network("10.0.0.0", 8),
            ..filter
        }
        .asks_for_addresses()
    );
}

proptest! {
    /// Whatever comes when, no second has more events than a second's and a burst's worth.
    #[test]
    fn events_keep_their_pace(
        rate in 1_u32..100_000,
        gaps in prop::collection::vec(0_u64..2_000_000, 1..2000),
    ) {
        let mut pace = Pace::per_second(rate);
        let (mut now, mut reported) = (1 << 40, 0_u64);
        let start = now;
        for gap in gaps {
            now += gap;
            if let Some(due) = pace.next_due(now) {
                pace.due_ns = due;
                reported += 1;
            }
        }
        let allowed = (now - start + BURST_NS) / pace.interval_ns + 1;
        prop_assert!(
            reported >= 1 && reported <= allowed,
            "{reported} of {allowed}"
        );
    }
}
