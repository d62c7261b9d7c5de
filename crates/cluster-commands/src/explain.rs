//! `flannel-agent cluster explain`: the way of a packet on both nodes, and one verdict.

use std::fmt::Write as _;

use clap::Args;
use flannel_terminal::color::Paint;

use super::access::ClusterAccess;
use flannel_cluster::{
    explain::{
        AskedPacket, EndRole, NodeAnswer, PacketReport,
        end::{PacketEnd, PacketEndName},
    },
    progress::Progress,
};
use flannel_command::{Answer, PrintOptions};
use flannel_node_commands::explain::{PacketOptions, TraceOptions, code, outcome, story};

/// The packet to explain, the cluster, and the output format.
#[derive(Debug, Args)]
pub struct ClusterExplainOptions {
    /// The pod that sends: NAME, NAMESPACE/NAME or its address
    #[arg(value_name = "SOURCE")]
    source: PacketEndName,
    /// The pod it sends to, likewise
    #[arg(value_name = "DESTINATION")]
    destination: PacketEndName,
    /// Namespace of pods that are named without one
    #[arg(short = 'N', long, value_name = "NAME", default_value = "default")]
    pod_namespace: String,
    #[command(flatten)]
    packet: PacketOptions,
    #[command(flatten)]
    trace: TraceOptions,
    #[command(flatten)]
    access: ClusterAccess,
    #[command(flatten)]
    print: PrintOptions,
}

/// Returns the mistake in the options, if there is one.
pub(super) fn mistake(options: &ClusterExplainOptions) -> Option<String> {
    options.packet.mistake()
}

/// Runs the command; the text to print, and 0 if both nodes say that the packet passes.
pub(super) async fn run(options: &ClusterExplainOptions) -> anyhow::Result<Answer> {
    let (client, pods) = (options.access.client().await?, options.access.pods());
    let name = |end: &PacketEndName| end.clone().or_in(&options.pod_namespace);
    let names = [name(&options.source), name(&options.destination)];
    let packet = AskedPacket {
        question: |source, destination| options.packet.between(source, destination),
        trace: options.trace.duration(),
    };
    let mut progress = Progress::new();
    let report = PacketReport::ask(
        &client,
        &pods,
        [&names[0], &names[1]],
        packet,
        &mut progress,
    )
    .await?;
    drop(progress);
    let text = options.print.print(&report, |paint| text(&report, paint));
    Ok(Answer {
        text,
        code: code(report.verdict.reaches),
    })
}

fn text(report: &PacketReport, paint: Paint) -> String {
    let PacketReport {
        source,
        destination,
        protocol,
        verdict,
        ..
    } = report;
    let mut out = format!(
        "{protocol} from {source} on {} to {destination} on {}\n",
        source.node, destination.node
    );
    for end in [source, destination]
        .into_iter()
        .filter(|end| end.host_network)
    {
        out += &host_network(end);
    }
    for answer in &report.nodes {
        out += &of_node(answer, paint);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\n{}: {}",
        outcome(verdict.reaches, paint),
        verdict.text
    );
    out
}

/// The remark on an end that is not in the pod network.
fn host_network(end: &PacketEnd) -> String {
    let PacketEnd {
        pod, address, node, ..
    } = end;
    match pod {
        Some(pod) => {
            format!(
                "{pod} is in the network of its node {node} (hostNetwork): {address} is the node's \
                 address\n"
            )
        }
        None => {
            format!("{address} is an address of the node {node}, not of a pod in the pod network\n")
        }
    }
}

/// The heading of a node, and its steps.
fn of_node(answer: &NodeAnswer, paint: Paint) -> String {
    let ends = match answer.ends[..] {
        [EndRole::Source] => "source",
        [EndRole::Destination] => "destination",
        _ => "source and destination",
    };
    let heading = format!("\n{}, node of the {ends}\n", paint.head(&answer.node));
    let steps = answer
        .explanation
        .as_ref()
        .map(|explanation| story(explanation, paint));
    let problem = || {
        format!(
            "    cannot be asked: {}\n",
            answer.problem.as_deref().unwrap_or("no answer")
        )
    };
    heading + &steps.unwrap_or_else(problem)
}

#[cfg(test)]
mod tests {
    use flannel_cluster::explain::verdict::PacketVerdict;
    use flannel_explain::{ExplainDocument, StepRow, StepState};

    use super::*;

    fn end(pod: &str, address: &str, node: &str) -> PacketEnd {
        let (pod, address) = (Some(pod.to_owned()), address.parse().expect("an address"));
        PacketEnd {
            pod,
            address,
            node: node.to_owned(),
            host_network: false,
        }
    }

    #[test]
    fn each_node_has_a_heading_and_its_numbered_steps() {
        let step = |topic: &str, state, text: &str| StepRow {
            topic: topic.to_owned(),
            state,
            text: text.to_owned(),
        };
        let document: ExplainDocument = serde_json::from_value(serde_json::json!({
            "source": "10.244.1.5",
            "destination": "192.0.2.2",
            "protocol": "udp",
            "steps": [],
            "programs": [],
            "verdict": { "reaches": false, "way": "none", "text": "" },
        }))
        .expect("a document");
        let steps = vec![
            step("source", StepState::Ok, "a pod"),
            step("route", StepState::Fail, "no route"),
        ];
        let asked = NodeAnswer {
            node: "n1".to_owned(),
            ends: vec![EndRole::Source],
            problem: None,
            explanation: Some(ExplainDocument { steps, ..document }),
        };
        let problem = Some("it runs stock flannel".to_owned());
        let silent = NodeAnswer {
            node: "n2".to_owned(),
            ends: vec![EndRole::Destination],
            problem,
            explanation: None,
        };
        let report = PacketReport {
            source: end("default/client", "10.244.1.5", "n1"),
            destination: PacketEnd {
                host_network: true,
                ..end("kube-system/dns", "192.0.2.2", "n2")
            },
            protocol: "udp",
            sport: None,
            dport: Some(53),
            nodes: vec![asked, silent],
            verdict: PacketVerdict {
                reaches: Some(false),
                text: "n1, step 2 (route): no route".to_owned(),
            },
        };
        let expected = "\
udp from default/client (10.244.1.5) on n1 to kube-system/dns (192.0.2.2) on n2
kube-system/dns is in the network of its node n2 (hostNetwork): 192.0.2.2 is the node's address

n1, node of the source
 1. ok    source       a pod
 2. FAIL  route        no route

n2, node of the destination
    cannot be asked: it runs stock flannel

lost: n1, step 2 (route): no route
";
        assert_eq!(text(&report, Paint(false)), expected);
    }
}
