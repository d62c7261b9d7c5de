//! The agent on one node: as a process, under bad input, next to many others, and against
//! unprivileged users.

mod addresses;
mod bad_input;
mod checksum_offload;
mod echo;
mod echo_unsummed;
mod interface;
mod leftovers;
mod many;
mod nexthops;
mod no_interface;
mod owner;
mod process;
mod rivals;
mod rule_engine;
mod switches;
mod unprivileged;
mod unreachable;
