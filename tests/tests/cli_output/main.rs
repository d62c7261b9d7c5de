//! What the subcommands print: for people and for programs, with the agent alive, dead and never there.

mod maps;
mod mode;
mod pipe;
mod status;
