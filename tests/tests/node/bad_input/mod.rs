//! Bad input of every kind, given to the agent as an operator or a neighbour would give it: a clear
//! message that names the value, the documented exit status, and a node that goes on doing what it
//! still can.

mod config;
mod datapath;
mod floods;
mod interface;
mod leases;
mod store;
mod usage;
