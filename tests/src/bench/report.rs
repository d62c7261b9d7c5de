//! Medians, ratios, a table and rows for other programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    lab::Sample,
    plan::{Mode, Profile, Workload},
};

/// All samples of one workload in one mode.
#[derive(Debug)]
pub(super) struct Series {
    profile: Profile,
    pub(super) workload: Workload,
    pub(super) mode: Mode,
    pub(super) samples: Vec<Sample>,
}

/// A row of the JSON file.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    profile: Profile,
    workload: Workload,
    /// What the modes are compared on; later rows go through a Service.
    via: &'static str,
    mode: Mode,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    cpu_per_unit: f64,
    cpu_unit: &'static str,
}

impl Series {
    pub(super) const fn new(profile: Profile, workload: Workload, mode: Mode) -> Self {
        Self { profile, workload, mode, samples: Vec::new() }
    }

    pub(super) fn row(&self) -> Row {
        let values = sorted(self.samples.iter().map(|sample| sample.value));
        Row {
            profile: self.profile,
            workload: self.workload,
            via: "pod",
            mode: self.mode,
            unit: self.workload.unit(),
            median: median(&values),
            min: values.first().copied().unwrap_or(f64::NAN),
            max: values.last().copied().unwrap_or(f64::NAN),
            cpu_per_unit: median(&sorted(self.samples.iter().map(|sample| sample.cpu))),
            cpu_unit: self.workload.cpu_unit(),
        }
    }
}

/// The table of one profile.
pub(super) fn table(profile: Profile, series: &[Series]) -> String {
    let rows: Vec<Row> = series.iter().map(Series::row).collect();
    let mut text = format!(
        "\n{:<14} {:<8} {:>9} {:>19}  {:<7} {:>8} {:>8} {:>9}\n",
        format!("[{profile}]"),
        "mode",
        "median",
        "min .. max",
        "unit",
        "x host",
        "x kernel",
        "cpu"
    );
    for row in &rows {
        let ratio = |to: Mode| {
            let base = rows.iter().find(|base| base.workload == row.workload && base.mode == to);
            base.map_or_else(|| "-".to_owned(), |base| format!("{:.2}", row.median / base.median))
        };
        let range = format!("{:.2} .. {:.2}", row.min, row.max);
        writeln!(
            text,
            "{:<14} {:<8} {:>9.2} {range:>19}  {:<7} {:>8} {:>8} {:>9.2} {}",
            row.workload.to_string(),
            row.mode.to_string(),
            row.median,
            row.unit,
            ratio(Mode::Host),
            ratio(Mode::Kernel),
            row.cpu_per_unit,
            row.cpu_unit
        )
        .expect("text grows");
    }
    text
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Of sorted values; between the two middle ones where their number is even.
pub(super) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_its_samples() {
        let mut series = Series::new(Profile::Wire, Workload::TcpStream, Mode::Encap);
        series.samples = [4.0, 1.0, 3.0, 2.0].map(|value| Sample { value, cpu: 10.0 * value }).to_vec();
        let row = serde_json::to_value(series.row()).expect("plain data");
        assert_eq!(row["median"], 2.5);
        assert_eq!((&row["min"], &row["max"], &row["cpu_per_unit"]), (&1.0.into(), &4.0.into(), &25.0.into()));
        assert_eq!(
            (&row["profile"], &row["workload"], &row["via"], &row["mode"]),
            (&"wire".into(), &"tcp_stream_1".into(), &"pod".into(), &"encap".into())
        );
    }
}
