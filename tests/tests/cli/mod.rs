//! The text that operators read: subcommands, metrics, and the pages that describe both.

mod docs;
mod exit;
mod explain;
mod flows;
mod hosts;
mod hubble;
mod json;
mod kernel_drops;
mod matrix;
mod metrics;
mod monitor;
mod output;
mod pictures;
mod quick_start;
#[path = "../../support/schemas.rs"]
mod schemas;
mod top;
