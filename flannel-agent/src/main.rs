//! Agent.
fn main() {}
