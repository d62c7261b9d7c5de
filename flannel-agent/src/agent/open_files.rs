//! The limit of open files, below which maps and sockets are missing one by one.

/// Maps, programs, sockets, health checks and some to spare.
const ENOUGH: u64 = 256;

/// Warns of a limit that does not suffice.
pub(super) fn check() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(limit) = soft_limit(&limits).filter(|limit| *limit < ENOUGH) {
        tracing::warn!(
            "this process may open {limit} files; raise the limit to {ENOUGH} or more \
             (LimitNOFILE=, ulimit -n)"
        );
    }
}

/// Parses the text of `/proc/self/limits`. Returns `None` if the number is not limited.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_counts() {
        let limits = "Max processes  1 2 processes\nMax open files            32                   \
            524288               files\n";
        assert_eq!(soft_limit(limits), Some(32));
        assert_eq!(
            soft_limit("Max open files  unlimited  unlimited  files\n"),
            None
        );
        assert!(
            soft_limit(&std::fs::read_to_string("/proc/self/limits").expect("limits")).is_some()
        );
    }
}
