//! A node changes hands, from stock flannel to the agent and back as docs/guides/migration.md says
//! it, with traffic running and a peer that moves meanwhile. Every phase says what it lost.

mod cleaned;
mod kept;
mod traffic;
mod world;
