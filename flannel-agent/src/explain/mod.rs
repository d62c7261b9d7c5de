//! Explains what would happen to a packet of a flow on this node, and why.
//!
//! `facts` reads: the pins, the kernel's routes, neighbours and FDB, the verdict of the real programs on a synthetic packet
//! ([`crate::datapath::trial`]). `story` judges, and is pure. Nothing is changed, counted or sent, and no agent is needed; where
//! one answers, its word on a peer's path is added.
//!
//! Not known here is what netfilter does to a packet: rules are the host's, and no reading of them replaces the kernel.

mod facts;
mod place;
mod question;
mod story;
mod trial;

pub use self::{
    question::{Question, Transport},
    story::{State, Step, Story, Tried, Verdict},
};
use crate::{datapath::PinRoot, netlink::NetlinkError, observe::status::Status};

/// Explains. `status` is what the agent says of itself, if one runs. Call inside a Tokio runtime.
pub async fn explain(question: Question, pins: &PinRoot, status: Option<Status>) -> Result<Story, NetlinkError> {
    Ok(story::tell(&facts::read(question, pins, status).await?))
}
