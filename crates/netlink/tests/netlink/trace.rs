//! Traces of packets through rules, with nft as the oracle.

use flannel_netfilter::{
    PacketTrace, TraceDirection, TraceEvent, TraceStep, TraceVerdict, TracedFlow, TracedTuple,
};

use crate::namespace::{addr, in_namespace, ip, run};

/// ICMP from this namespace to a neighbour that it does not have.
fn flow() -> TracedFlow {
    let ends = ["10.9.0.1", "10.9.0.2"].map(addr);
    let original = TracedTuple {
        source: ends[0],
        destination: ends[1],
        source_port: None,
        destination_port: None,
    };
    TracedFlow {
        protocol: 1,
        original,
        replies: vec![original.reversed()],
    }
}

fn ping() {
    let neighbour = "neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 nud permanent dev eth0";
    ip(neighbour);
    let mut ping = std::process::Command::new("ping");
    let sent = ping
        .args(["-n", "-c", "1", "-W", "0.1", "10.9.0.2"])
        .output()
        .expect("ping is installed");
    assert!(!sent.status.success(), "no host answers");
}

/// The steps of packets up to one.
async fn steps_until(
    trace: &mut PacketTrace,
    is_last: impl Fn(&TraceStep) -> bool,
) -> Vec<TraceStep> {
    let mut steps = Vec::new();
    loop {
        let TraceEvent::Step { step, .. } = trace.next().await.expect("an event") else {
            panic!("events were lost")
        };
        steps.push(step.clone());
        if is_last(&step) {
            return steps;
        }
    }
}

#[test]
fn a_packet_is_traced_to_the_last_hook_and_to_the_rule_that_drops_it() {
    in_namespace(async |_ns| {
        let mut trace = PacketTrace::start(&flow())
            .expect("a trace")
            .expect("nf_tables");
        assert!(run("nft", "list tables").contains("table inet flannel-trace-"));
        ping();
        let steps = steps_until(&mut trace, |step| *step == TraceStep::Passed).await;
        assert_eq!(
            steps.first(),
            Some(&TraceStep::Begun(TraceDirection::Original)),
            "{steps:?}"
        );

        run("nft", "add table ip t");
        run(
            "nft",
            "add chain ip t out { type filter hook output priority 0 ; }",
        );
        run("nft", "add rule ip t out ip daddr 10.9.0.2 drop");
        ping();
        let is_drop = |step: &TraceStep| {
            matches!(
                step,
                TraceStep::Judged(judgement) if judgement.verdict == TraceVerdict::Drop
                    && judgement.chain == "out"
                    && judgement.table.name == "t"
                    && judgement.rule.is_some()
            )
        };
        steps_until(&mut trace, is_drop).await;
        let (matched, _) = trace.finish().expect("counters");
        assert_eq!((matched.original, matched.reply), (2, 0));
        assert_eq!(run("nft", "list tables").trim(), "table ip t");
    });
}
