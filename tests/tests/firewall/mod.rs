//! Masquerade, forward rules and the blackhole route: their effect on packets, their repair after
//! foreign changes, and both while the agent restarts.

mod drift;
mod exempt;
mod packets;
mod restart;
mod support;
mod switches;
