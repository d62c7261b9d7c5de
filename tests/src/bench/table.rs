//! The rows of a run as text: for the terminal, with all there is, and for documents, as Markdown.

use std::fmt::Write as _;

use super::{
    plan::{Mode, Profile, Via, Workload},
    report::{Row, Rows},
};

/// Everything that was measured in one profile, for the terminal.
pub(super) fn terminal(rows: &Rows, profile: Profile) -> String {
    let head = format!("[{profile}]");
    let mut text = format!(
        "\n{head:<13} {:<8} {:<14} {:>10} {:>21}  {:<14} {:>7} {:>9} {:>12} {:>8}\n",
        "via", "mode", "median", "min .. max", "unit", "x host", "x kernel", "sent again/s", "CPU"
    );
    for row in rows.0.iter().filter(|row| row.profile == profile) {
        let range = format!("{} .. {}", figure(row.min), figure(row.max));
        writeln!(
            text,
            "{:<13} {:<8} {:<14} {:>10} {range:>21}  {:<14} {:>7} {:>9} {:>12.0} {:>8.2} {}",
            row.workload.to_string(),
            row.via.to_string(),
            row.mode.to_string(),
            figure(row.median),
            row.unit,
            ratio(rows, row, row.mode.base()),
            ratio(rows, row, row.mode.kernel()),
            row.sent_again,
            row.cpu_per_unit,
            row.cpu_unit
        )
        .expect("text grows");
    }
    text
}

/// The ratios of a Markdown table: head, mode, and the mode it is compared with.
const RATIOS: [(&str, Mode, Mode); 8] = [
    ("fast / kernel", Mode::Fast, Mode::Kernel),
    ("fast / host", Mode::Fast, Mode::Host),
    ("outward / kernel", Mode::OutwardFast, Mode::OutwardKernel),
    ("outward / host", Mode::OutwardFast, Mode::Host),
    ("inward / kernel", Mode::InwardFast, Mode::InwardKernel),
    ("inward / host", Mode::InwardFast, Mode::Host),
    ("pods / nodes", Mode::Wireguard, Mode::WireguardHost),
    ("fast / nodes", Mode::WireguardFast, Mode::WireguardHost),
];

/// A profile's medians and ratios, as a Markdown table.
pub(super) fn markdown(rows: &Rows, profile: Profile) -> String {
    let modes = rows.modes();
    let titles: Vec<&str> = modes.iter().map(|mode| mode.title()).collect();
    let ratios: Vec<(&str, Mode, Mode)> = RATIOS
        .into_iter()
        .filter(|(_, mode, _)| modes.contains(mode))
        .collect();
    let heads: Vec<&str> = titles
        .into_iter()
        .chain(ratios.iter().map(|(head, ..)| *head))
        .collect();
    let mut text = format!("| {profile} | to | {} |\n", heads.join(" | "));
    writeln!(text, "|---|---|{}", "---|".repeat(heads.len())).expect("text grows");
    for workload in Workload::ALL {
        for via in Via::ALL {
            let cell = |mode| rows.find(profile, workload, via, mode);
            let Some(unit) = modes
                .iter()
                .find_map(|mode| cell(*mode))
                .map(|row| row.unit.as_ref())
            else {
                continue;
            };
            let medians: Vec<String> = modes
                .iter()
                .map(|mode| cell(*mode).map_or("-".to_owned(), |row| figure(row.median)))
                .collect();
            let of = |(_, mode, to): &(&str, Mode, Mode)| {
                cell(*mode).map_or("-".to_owned(), |row| ratio(rows, row, *to))
            };
            let cells: Vec<String> = medians.into_iter().chain(ratios.iter().map(of)).collect();
            writeln!(
                text,
                "| {}, {unit} | {via} | {} |",
                workload.title(),
                cells.join(" | ")
            )
            .expect("text grows");
        }
    }
    text
}

fn ratio(rows: &Rows, row: &Row, to: Mode) -> String {
    rows.ratio(row, to)
        .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Large numbers without digits that mean nothing.
fn figure(value: f64) -> String {
    if value < 1000.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::row, *};

    fn rows() -> Rows {
        Rows(vec![
            row(Workload::TcpRr, Via::Pod, Mode::Host, 140_000.0),
            row(Workload::TcpRr, Via::Pod, Mode::Kernel, 70_000.0),
            row(Workload::TcpRr, Via::Pod, Mode::Fast, 133_000.0),
        ])
    }

    #[test]
    fn a_line_of_the_terminal_has_median_spread_and_ratios() {
        let text = terminal(&rows(), Profile::Wire);
        let line = text.lines().last().expect("a line");
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let expected = "tcp_rr pod fast 133000 119700 .. 146300 transactions/s 0.95 1.90 2 1.00 \
            us/transaction";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
        assert_eq!(
            terminal(&rows(), Profile::Offload).lines().count(),
            2,
            "nothing but the head"
        );
    }

    #[test]
    fn markdown_leaves_out_what_was_not_measured() {
        let text = markdown(&rows(), Profile::Wire);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "| wire | to | host network | mode kernel | mode fast | fast / kernel | fast / host |"
        );
        assert_eq!(
            lines[2..],
            [
                "| TCP request/response, transactions/s | pod | 140000 | 70000 | 133000 | 1.90 | \
                 0.95 |"
            ]
        );
    }
}
