//! The load of the machine, by the kernel's pressure stall information (PSI, Linux 4.20;
//! <https://docs.kernel.org/accounting/psi.html>).

use std::fs;

/// The share of the last ten seconds in which something waited for a CPU, for the disk and for
/// memory.
pub(super) fn describe() -> String {
    let of = |what: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{what}")).unwrap_or_default();
        share(&text).map_or_else(
            || format!("{what} unknown"),
            |share| format!("{what} {share} %"),
        )
    };
    format!(
        "pressure in the last 10 s: {}, {}, {}",
        of("cpu"),
        of("io"),
        of("memory")
    )
}

/// Reads `some avg10=1.23 ...`.
fn share(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.strip_prefix("some avg10="))
        .and_then(|rest| rest.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_ten_seconds_is_read() {
        let text = "some avg10=9.71 avg60=3.92 avg300=1.60 total=7483250\nfull avg10=0.00 \
            avg60=0.00 total=0\n";
        assert_eq!(share(text), Some("9.71"));
        assert_eq!(share(""), None);
    }
}
