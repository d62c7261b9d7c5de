//! The end-to-end suite: a module for each subject, in one program, because each program is linked
//! separately.
//!
//! `cargo xtask test` runs each test in its own process: some tests change their process, such as
//! its limit of descriptors or its cgroup.

mod cli;
mod cloud;
mod cni;
mod deploy;
mod extension;
mod families;
mod fast;
mod firewall;
mod ipip;
mod ipsec;
mod lab;
mod lease;
mod load;
mod node;
mod pod;
mod source_filter;
mod stock;
mod tunnel;
mod udp;
mod upgrade;
mod wireguard;
