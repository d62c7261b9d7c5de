//! Firewall rules as the tools of the host print them: which tools there are, how they are run, and
//! the forms of their output.
//!
//! Two forms are read in text: that of the `save` tools ([`saved`]), and one table of `nft`
//! ([`listed`]). All of it is pure, except [`tool`].

pub mod legacy;
pub mod listed;
pub mod saved;
pub mod tool;
pub mod words;

pub use self::tool::ToolError;
