//! Firewall rules as the tools of the host print them: which tools there are, how they are run, and
//! the forms of their output.
//!
//! Says nothing about the meaning of rules. [`crate::traffic`] writes ours, [`crate::firewall`]
//! judges those of others. Two forms are read in text: that of the `save` tools (`saved`), and
//! one table of `nft` (`listed`), which a rule of ours is compared with as it would be written,
//! by an nft without JSON too. All of it is pure, except `tool`.

pub(crate) mod listed;
pub(crate) mod saved;
pub(crate) mod tool;
pub(crate) mod words;

pub use self::tool::ToolError;
