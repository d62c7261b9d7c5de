//! Mode `fast` as an operator runs it: agents find the pods, attach the programs and keep what the
//! mode promises.

mod cleanup;
mod conntrack;
mod flows;
mod gates;
mod generation;
mod lowered;
mod merged;
mod offloads;
mod pods;
pub(super) mod schemas;
mod survival;
mod sysctls;
mod underlay;
