//! The agent on one node: as a process, under bad input, next to many others, and against
//! unprivileged users.

mod addresses;
mod bad_input;
mod echo;
mod interface;
mod many;
mod nexthops;
mod process;
mod unprivileged;
mod unreachable;
