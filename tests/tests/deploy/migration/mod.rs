//! A node changes hands, from stock flannel to the agent and back as docs/guides/migration.md
//! describes it, under traffic and with a peer that moves at the same time. Every phase reports its
//! losses.

mod cleaned;
mod kept;
mod traffic;
mod world;
