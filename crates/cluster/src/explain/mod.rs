//! The way of a packet between two pods, explained by the agents of both nodes.
//!
//! [`end`] finds pod, address and node of each end by the API, [`verdict`] (pure) makes one verdict
//! of both answers. The report of each node is that of `flannel-agent explain`.

pub mod end;
mod node_answer;
#[cfg(test)]
mod tests;
pub mod verdict;

use std::{net::IpAddr, time::Duration};

use flannel_document::Document;
use flannel_explain::{ExplainDocument, Question};
use flannel_host::error_chain::chain;
use futures::{StreamExt as _, stream};
use serde::Serialize;

pub use self::node_answer::{EndRole, NodeAnswer};
use self::{
    end::{EndError, FoundEnd, PacketEnd, PacketEndName},
    verdict::PacketVerdict,
};
use super::{
    answer::{self, Silence},
    client::ClusterClient,
    members::{AgentPods, ClusterNode},
    progress::Progress,
};

/// Nodes at the ends of a packet's way.
const ENDS: usize = 2;

/// The way of a packet between two pods, as the nodes of both explain it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PacketReport {
    /// The sender.
    pub source: PacketEnd,
    /// The receiver.
    pub destination: PacketEnd,
    /// `tcp`, `udp` or `icmp`.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(schema_with = "flannel_explain::document::protocol_name")
    )]
    pub protocol: &'static str,
    /// The source port, if one was given.
    pub sport: Option<u16>,
    /// The destination port, if one was given.
    pub dport: Option<u16>,
    /// The answer of each node: of the source's, then of the destination's if it is another.
    pub nodes: Vec<NodeAnswer>,
    /// The outcome for the packet.
    pub verdict: PacketVerdict,
}

/// The packet that nodes are asked about.
#[derive(Clone, Copy, Debug)]
pub struct AskedPacket<Q> {
    /// Makes the question of two addresses.
    pub question: Q,
    /// For this time each node traces the packets of the flow.
    pub trace: Option<Duration>,
}

impl Document for PacketReport {
    const NAME: &'static str = "cluster-explain";
}

impl PacketReport {
    /// Finds both ends, and asks their nodes at the same time.
    pub async fn ask(
        client: &ClusterClient,
        pods: &AgentPods,
        names: [&PacketEndName; 2],
        packet: AskedPacket<impl Fn(IpAddr, IpAddr) -> Question>,
        progress: &mut Progress,
    ) -> Result<Self, EndError> {
        let members = client.nodes(pods).await?;
        let source = FoundEnd::find(client, pods, &members, names[0], progress).await?;
        let destination = FoundEnd::find(client, pods, &members, names[1], progress).await?;
        let (source, destination) = end::of_one_family(&source, &destination)?;
        let question = (packet.question)(source.address, destination.address);
        let asker = NodeAsker {
            client,
            pods,
            members: &members,
            question: &question,
            trace: packet.trace,
        };
        progress.show("asking the nodes of both ends");
        let asked = asked_nodes(&source.node, &destination.node).into_iter();
        let asked = asked.map(|(node, ends)| asker.ask(node, ends));
        let nodes: Vec<NodeAnswer> = stream::iter(asked).buffered(ENDS).collect().await;
        let verdict = PacketVerdict::of(&nodes);
        let Question {
            transport,
            sport,
            dport,
            ..
        } = question;
        Ok(Self {
            source,
            destination,
            protocol: transport.name(),
            sport,
            dport,
            nodes,
            verdict,
        })
    }
}

/// The nodes to ask, each with the ends on it. One node is asked once.
fn asked_nodes(source: &str, destination: &str) -> Vec<(String, Vec<EndRole>)> {
    if source == destination {
        return vec![(
            source.to_owned(),
            vec![EndRole::Source, EndRole::Destination],
        )];
    }
    vec![
        (source.to_owned(), vec![EndRole::Source]),
        (destination.to_owned(), vec![EndRole::Destination]),
    ]
}

/// The packet, and the nodes that may be asked about it.
struct NodeAsker<'a> {
    client: &'a ClusterClient,
    pods: &'a AgentPods,
    members: &'a [ClusterNode],
    question: &'a Question,
    trace: Option<Duration>,
}

impl NodeAsker<'_> {
    async fn ask(&self, node: String, ends: Vec<EndRole>) -> NodeAnswer {
        let (explanation, problem) = match self.explanation(&node).await {
            Ok(explanation) => (Some(explanation), None),
            Err(problem) => (None, Some(problem)),
        };
        NodeAnswer {
            node,
            ends,
            problem,
            explanation,
        }
    }

    /// The explanation of a node, or the reason why there is none.
    async fn explanation(&self, node: &str) -> Result<ExplainDocument, String> {
        let member = self.members.iter().find(|member| member.name() == node);
        let member = member.ok_or_else(|| "it is not among the nodes with Linux".to_owned())?;
        let container = member
            .running_agent(self.pods)
            .map_err(|absence| absence.to_string())?;
        let mut command = self.question.command();
        command.extend(
            self.trace
                .map(|trace| format!("--trace={}", trace.as_secs())),
        );
        command.push("--output=json".to_owned());
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let limit = answer::LIMIT + self.trace.unwrap_or_default();
        self.client
            .ask(&container, &words, limit)
            .await
            .map_err(|silence| match silence {
                Silence::Exec(error) if error.lacks_program() => {
                    "it runs stock flannel, which explains no packet".to_owned()
                }
                silence => chain(&silence),
            })
    }
}
