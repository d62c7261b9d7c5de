//! One verdict of the answers of both nodes. Pure.

use flannel_explain::{ExplainDocument, StepState};
use serde::Serialize;

use super::node_answer::NodeAnswer;

/// The outcome for the packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PacketVerdict {
    /// True if every node says that the packet passes its part of the way, false if one says that
    /// it is lost there; `null` if a node cannot be asked or does not know.
    pub reaches: Option<bool>,
    /// The node, the step and the cause.
    pub text: String,
}

impl PacketVerdict {
    /// The verdict of these nodes: a loss on one of them decides.
    pub(super) fn of(nodes: &[NodeAnswer]) -> Self {
        let lost: Vec<String> = nodes.iter().filter_map(loss).collect();
        if !lost.is_empty() {
            return Self {
                reaches: Some(false),
                text: lost.join("; "),
            };
        }
        let unknown: Vec<String> = nodes.iter().filter_map(uncertainty).collect();
        if !unknown.is_empty() {
            return Self {
                reaches: None,
                text: unknown.join("; "),
            };
        }
        let names: Vec<&str> = nodes.iter().map(|answer| answer.node.as_str()).collect();
        let text = format!(
            "no step is broken on {}; a rule of a host's firewall may still drop the packet",
            names.join(" and ")
        );
        Self {
            reaches: Some(true),
            text,
        }
    }
}

/// The loss of the packet on a node.
fn loss(answer: &NodeAnswer) -> Option<String> {
    let explanation = answer
        .explanation
        .as_ref()
        .filter(|explanation| explanation.verdict.reaches == Some(false))?;
    Some(format!(
        "{}, {}",
        answer.node,
        cause(explanation, StepState::Fail)
    ))
}

/// The reason why a node does not say that the packet passes.
fn uncertainty(answer: &NodeAnswer) -> Option<String> {
    let node = &answer.node;
    match &answer.explanation {
        None => Some(format!(
            "{node} cannot be asked: {}",
            answer.problem.as_deref().unwrap_or("no answer")
        )),
        Some(explanation) if explanation.verdict.reaches.is_none() => Some(format!(
            "{node} does not know, {}",
            cause(explanation, StepState::Unknown)
        )),
        Some(_) => None,
    }
}

/// The first step of this state; without one, the node's verdict.
fn cause(explanation: &ExplainDocument, state: StepState) -> String {
    let found = (1..)
        .zip(&explanation.steps)
        .find(|(_, step)| step.state == state);
    found.map_or_else(
        || explanation.verdict.text.clone(),
        |(number, step)| format!("step {number} ({}): {}", step.topic, step.text),
    )
}
