//! What those without privileges try against a node: a local user, and a pod.

mod pod;
mod user;
