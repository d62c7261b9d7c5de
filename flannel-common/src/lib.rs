#![cfg_attr(not(test), no_std)]
//! What the agent and the BPF programs share.

pub mod addr;
