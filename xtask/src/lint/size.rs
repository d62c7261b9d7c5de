//! The size of a crate, so that none becomes the house: lines of product code, without comments,
//! blank lines and tests.

use std::path::Path;

use super::sources::{is_test, product_lines, rust_files, split_comment};

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
    let files = rust_files(src)?;
    let product = files
        .iter()
        .filter(|(file, _)| file.strip_prefix(src).is_ok_and(|below| !is_test(below)));
    let lines: usize = product.map(|(_, text)| lines(text)).sum();
    Ok(
        (lines > MOST)
            .then(|| format!("{krate} has {lines} lines of product code, {MOST} at most")),
    )
}

fn lines(text: &str) -> usize {
    product_lines(text)
        .into_iter()
        .filter(|(_, line)| !split_comment(line).0.trim().is_empty())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let text = "//! A.\n\nfn a() {} // B\n/// C\nfn d() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(lines(text), 2);
        assert!(!is_test(Path::new("a/b.rs")) && is_test(Path::new("a/tests/b.rs")));
    }
}
