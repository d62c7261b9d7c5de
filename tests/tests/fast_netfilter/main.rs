//! Netfilter has its say in mode `fast`: what it forbids stops, what it marks is marked, and what conntrack knows of a
//! connection is what it knows without the mode.

mod conntrack;
mod cut;
mod liberal;
mod marks;
mod unlearned;
