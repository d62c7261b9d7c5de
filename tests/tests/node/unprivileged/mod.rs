//! Attempts against a node without privileges: by a local user, and by a pod.

mod pod;
mod user;
