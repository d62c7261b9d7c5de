//! Mode `fast`: known flows bypass the host network stack, and the packets are those of mode
//! `kernel`.

mod agents;
mod checksums;
mod churn;
mod conntrack;
mod devices;
mod differential;
mod dummy;
mod flood;
mod flows;
mod flowtable;
mod handshake;
mod host_gw;
mod hostile;
mod identity;
mod idle;
mod mixed;
mod netfilter;
mod order;
mod outside;
mod pairing;
mod parity;
mod routed;
mod services;
mod stress;
mod talks;
