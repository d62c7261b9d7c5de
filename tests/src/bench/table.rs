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

/// The quotients of a Markdown table: head, and the modes whose columns are divided.
const QUOTIENTS: [(&str, Mode, Mode); 4] = [
    ("fast / kernel", Mode::Fast, Mode::Kernel),
    (
        "outward fast / kernel",
        Mode::OutwardFast,
        Mode::OutwardKernel,
    ),
    ("inward fast / kernel", Mode::InwardFast, Mode::InwardKernel),
    (
        "WireGuard fast / kernel",
        Mode::WireguardFast,
        Mode::Wireguard,
    ),
];

/// A profile as a Markdown table: the rates of the nodes, those of pods in parts of them, and the
/// quotients of what stands there.
pub(super) fn markdown(rows: &Rows, profile: Profile) -> String {
    let modes = rows.modes();
    let quotients: Vec<(&str, Mode, Mode)> = QUOTIENTS
        .into_iter()
        .filter(|(_, mode, to)| modes.contains(mode) && modes.contains(to))
        .collect();
    let titles = modes.iter().map(|mode| mode.title());
    let heads: Vec<&str> = titles
        .chain(quotients.iter().map(|(head, ..)| *head))
        .collect();
    let mut text = format!("| {profile} | to | {} |\n", heads.join(" | "));
    writeln!(text, "|---|---|{}", "---|".repeat(heads.len())).expect("text grows");
    for workload in Workload::ALL {
        for via in Via::ALL {
            let mut cells = modes
                .iter()
                .map(|mode| rows.find(profile, workload, via, *mode));
            let Some(first) = cells.find_map(|row| row) else {
                continue;
            };
            let shown = |mode| Shown::find(rows, profile, (workload, via), mode);
            let medians = modes
                .iter()
                .map(|mode| shown(*mode).map_or(NONE.to_owned(), Shown::text));
            let divided = quotients.iter().map(|&(_, mode, to)| {
                quotient(shown(mode), shown(to))
                    .map_or(NONE.to_owned(), |value| format!("{value:.2}"))
            });
            let cells: Vec<String> = medians.chain(divided).collect();
            let (title, unit) = (workload.title(), &first.unit);
            writeln!(text, "| {title}, {unit} | {via} | {} |", cells.join(" | "))
                .expect("text grows");
        }
    }
    text
}

/// A cell without a value.
const NONE: &str = "-";

/// The value of a cell.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    Rate(f64),
    /// A part of the rate between nodes, with the two digits of the table.
    Part(f64),
}

impl Shown {
    pub(super) fn find(
        rows: &Rows,
        profile: Profile,
        (workload, via): (Workload, Via),
        mode: Mode,
    ) -> Option<Self> {
        rows.find(profile, workload, via, mode)
            .map(|row| Self::of(rows, row))
    }

    fn of(rows: &Rows, row: &Row) -> Self {
        let base = row.mode.base();
        match rows.ratio(row, base).filter(|_| row.mode != base) {
            Some(ratio) => Self::Part((ratio * 100.0).round() / 100.0),
            None => Self::Rate(row.median),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Rate(rate) => figure(rate),
            Self::Part(part) => format!("{part:.2}"),
        }
    }
}

/// The quotient of two values of one kind, as they stand in the table.
pub(super) fn quotient(of: Option<Shown>, to: Option<Shown>) -> Option<f64> {
    match (of?, to?) {
        (Shown::Part(of), Shown::Part(to)) | (Shown::Rate(of), Shown::Rate(to)) => Some(of / to),
        _ => None,
    }
}

fn ratio(rows: &Rows, row: &Row, to: Mode) -> String {
    rows.ratio(row, to)
        .map_or(NONE.to_owned(), |ratio| format!("{ratio:.2}"))
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
            "| wire | to | host network | mode kernel | mode fast | fast / kernel |"
        );
        assert_eq!(
            lines[2..],
            ["| TCP request/response, transactions/s | pod | 140000 | 0.50 | 0.95 | 1.90 |"]
        );
    }

    #[test]
    fn without_the_nodes_a_markdown_table_has_rates() {
        let rows = Rows(rows().0.split_off(1));
        let text = markdown(&rows, Profile::Wire);
        assert_eq!(
            text.lines().last(),
            Some("| TCP request/response, transactions/s | pod | 70000 | 133000 | 1.90 |")
        );
    }
}
