//! `explain`, `check`, `bugtool` and `maps dump --diff`, and what rules do to mode `fast`: what
//! they say agrees with what is.

mod bugtool;
mod check;
mod diff;
mod forward_rules;
mod no_ebpf;
mod services;
mod story;
mod strict;
mod trace;
