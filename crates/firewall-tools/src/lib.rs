//! Firewall rules as the tools of the host print them: which tools there are, how they are run, and
//! the forms of their output.
//!
//! Three forms are read in text: that of the `save` tools ([`saved`]), one table of `nft`
//! ([`listed`]), and one chain of `nft` with handles ([`rule_texts`]). All of it is pure, except
//! [`tool`] and the function that runs nft for [`rule_texts`].

pub mod legacy;
pub mod listed;
pub mod rule_texts;
pub mod saved;
pub mod tool;
pub mod words;

pub use self::tool::ToolError;
