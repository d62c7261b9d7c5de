//! Many: agents on one machine, peers of one agent, names and places it runs under.

mod agents;
mod flanneld;
mod peers;
mod stop;
