//! Many: agents on one machine, peers of one agent, names and places it runs under.

mod agents;
mod churn;
mod flanneld;
mod peers;
mod stop;
