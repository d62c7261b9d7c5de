//! `flannel-agent connectivity test`: short-lived pods on each node, and packets between them.
//!
//! On the operator's machine: objects to create (`manifest`), their life (`deploy`), the checks
//! (`plan`), the modes (`modes`), the causes of failures (`failing_check`, `diagnosis`) and the
//! order of it all (`run`). In the pods, the same binary answers (`serve`) and asks (`probe`,
//! `mtu`), in rounds (`round`) and in the words of `message` and `target`.
//!
//! Without Kubernetes the command runs on each host, and network namespaces take the place of the
//! pods (`hosts`).
//!
//! Invariant: the objects lie in their own namespace, which is deleted at every end but SIGKILL;
//! pods end by themselves after [`manifest::LIFETIME`].

pub mod deploy;
mod diagnosis;
mod failing_check;
pub mod hosts;
pub mod manifest;
mod message;
pub mod modes;
mod mtu;
pub mod plan;
pub mod probe;
mod round;
pub mod run;
pub mod serve;
pub mod target;

pub use self::diagnosis::{Cause, Explanation};
