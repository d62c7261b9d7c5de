//! Metrics: what agents answer, and that documentation, alerts and dashboard speak of metrics there
//! are.

mod agent;
mod datapath;
mod documents;
mod prometheus;
mod promtool;
mod scrape;
