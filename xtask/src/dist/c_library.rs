//! The oldest C library with which the agent runs: it is linked dynamically, because a static glibc
//! cannot look up names as a host is set up to.

use std::path::Path;

use anyhow::{Context as _, ensure};

/// The version of glibc, as `docs/install/requirements.md` promises it: Debian 12, Ubuntu 22.04,
/// RHEL 9.
pub(super) const OLDEST: &str = "2.34";
const NAME: &[u8] = b"GLIBC_2.";

/// Checks that a program asks for no newer one.
pub(super) fn check(program: &Path) -> anyhow::Result<()> {
    let bytes =
        std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let newest =
        newest(&bytes).with_context(|| format!("{} asks for no glibc", program.display()))?;
    ensure!(
        format!("2.{newest}") == OLDEST || newest < minor(OLDEST),
        "{} asks for glibc 2.{newest}, newer than the {OLDEST} that documents promise",
        program.display()
    );
    Ok(())
}

/// The second number of the newest version that is named.
fn newest(bytes: &[u8]) -> Option<u32> {
    let starts = bytes
        .windows(NAME.len())
        .enumerate()
        .filter(|(_, window)| *window == NAME);
    let numbers = starts.filter_map(|(at, _)| {
        let rest = &bytes[at + NAME.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    });
    numbers.max()
}

fn minor(version: &str) -> u32 {
    version
        .rsplit('.')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        assert_eq!(newest(b"x\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"), Some(34));
        assert_eq!(newest(b"GLIBC_PRIVATE"), None);
    }
}
