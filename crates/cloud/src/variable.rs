//! Variables of the environment.

/// Reads one. An empty one is as if it were absent.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
