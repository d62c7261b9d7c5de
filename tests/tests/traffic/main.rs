//! Masquerade, forward rules and the blackhole route: what becomes of packets, of the rules when somebody changes them, and of
//! both while the agent restarts.

mod drift;
mod packets;
mod restart;
mod support;
mod switches;
