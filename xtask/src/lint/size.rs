//! The size of a crate, so that none becomes the house: lines of product code, without comments,
//! blank lines and tests.

use std::path::Path;

use super::sources::product_code;

/// Lines of product code of one crate.
const MOST: usize = 4_500;
/// Crates that may have more, each with the reason.
const MORE: [(&str, &str); 4] = [
    ("crates/store", "two stores with one contract"),
    ("flannel-ebpf", "one object of programs"),
    ("tests", "only for tests"),
    ("xtask", "only for developers"),
];

/// Returns a line for each crate that is too large.
pub(super) fn findings(krate: &str, src: &Path) -> anyhow::Result<Option<String>> {
    if MORE.iter().any(|(name, _)| *name == krate) {
        return Ok(None);
    }
    let lines: usize = product_code(src)?.iter().map(|(_, code)| lines(code)).sum();
    Ok(
        (lines > MOST)
            .then(|| format!("{krate} has {lines} lines of product code, {MOST} at most")),
    )
}

fn lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_do_not_count() {
        assert_eq!(lines("\n\nfn a() {} \n\nfn d() {}"), 2);
    }
}
