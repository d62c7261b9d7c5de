//! The harness of the tests: waiting for conditions, judging times, and saying what did not run.

pub(crate) mod http;
pub mod judged;
pub mod not_run;
pub mod picture;
pub mod pressure;
pub mod variable;
pub mod wait;
