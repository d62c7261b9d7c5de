//! Flows and packets of this node as the programs saw them: the flow table as rows (`rows`),
//! packets as they happen (`monitor`), events of flows (`events`), the counters of pods' devices
//! (`pod_traffic`) and the rates of the last ten minutes (`history`).
//!
//! Everything here is read from the pinned maps and from the kernel, and changes nothing. How it is
//! shown is for others to decide.

pub mod events;
pub mod history;
pub mod monitor;
pub mod pod_traffic;
pub mod rows;
