//! The output of the subcommands, for people and for programs: with the agent running, dead and
//! never started.

mod maps;
mod mode;
mod pipe;
mod status;
