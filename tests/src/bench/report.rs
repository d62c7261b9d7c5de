//! Medians and ratios: from samples to the rows that tables, charts and other programs read.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    cpus::Placement,
    plan::{Mode, Profile, Via, Workload},
    site::Sample,
};

/// All samples of one workload in one mode.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) profile: Profile,
    pub(super) workload: Workload,
    pub(super) via: Via,
    pub(super) mode: Mode,
    pub(super) cpus: Placement,
    pub(super) samples: Vec<Sample>,
}

/// A row of the JSON file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) profile: Profile,
    pub(super) workload: Workload,
    pub(super) via: Via,
    pub(super) mode: Mode,
    pub(super) cpus: Placement,
    pub(super) unit: Cow<'static, str>,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Of each round, in their order.
    pub(super) rates: Vec<f64>,
    pub(super) cpu_per_unit: f64,
    pub(super) cpu_unit: Cow<'static, str>,
    /// Segments of TCP sent again, a second.
    pub(super) sent_again: f64,
}

/// The rows of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Rows(pub(super) Vec<Row>);

impl Series {
    pub(super) const fn new(
        profile: Profile,
        workload: Workload,
        via: Via,
        mode: Mode,
        cpus: Placement,
    ) -> Self {
        Self {
            profile,
            workload,
            via,
            mode,
            cpus,
            samples: Vec::new(),
        }
    }

    /// `None` without a sample.
    pub(super) fn row(&self) -> Option<Row> {
        let rates: Vec<f64> = self.samples.iter().map(|sample| sample.value).collect();
        let values = sorted(rates.iter().copied());
        Some(Row {
            profile: self.profile,
            workload: self.workload,
            via: self.via,
            mode: self.mode,
            cpus: self.cpus,
            unit: self.workload.unit().into(),
            median: median(&values),
            min: *values.first()?,
            max: *values.last()?,
            rates,
            cpu_per_unit: median(&sorted(self.samples.iter().map(|sample| sample.cpu))),
            cpu_unit: self.workload.cpu_unit().into(),
            sent_again: median(&sorted(self.samples.iter().map(|sample| sample.sent_again))),
        })
    }
}

impl Rows {
    pub(super) fn find(
        &self,
        profile: Profile,
        workload: Workload,
        via: Via,
        mode: Mode,
    ) -> Option<&Row> {
        self.0.iter().find(|row| {
            (row.profile, row.workload, row.via, row.mode) == (profile, workload, via, mode)
        })
    }

    /// Returns the ratio of the rate to that of another mode in each round, sorted. Both reach the
    /// server the same way, but nodes always reach it directly, because the hosts have no Services.
    /// The modes of a round follow one another, so a machine that is slower in some rounds is so
    /// for both.
    pub(super) fn ratios(&self, row: &Row, to: Mode) -> Option<Vec<f64>> {
        let via = if to.is_between_nodes() {
            Via::Pod
        } else {
            row.via
        };
        let base = self.find(row.profile, row.workload, via, to)?;
        Some(sorted(
            row.rates
                .iter()
                .zip(&base.rates)
                .map(|(rate, base)| rate / base),
        ))
    }

    /// The median of these.
    pub(super) fn ratio(&self, row: &Row, to: Mode) -> Option<f64> {
        self.ratios(row, to).map(|ratios| median(&ratios))
    }

    pub(super) fn has(&self, is: impl Fn(&Row) -> bool) -> bool {
        self.0.iter().any(is)
    }

    /// The modes there are rows of, in their order.
    pub(super) fn modes(&self) -> Vec<Mode> {
        Mode::ALL
            .into_iter()
            .filter(|mode| self.has(|row| row.mode == *mode))
            .collect()
    }
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
pub(super) mod tests {
    use super::*;

    /// A row of the profile "wire" with this median.
    pub(in super::super) fn row(workload: Workload, via: Via, mode: Mode, median: f64) -> Row {
        let sample = |factor| Sample {
            value: factor * median,
            cpu: 1.0,
            sent_again: 2.0,
        };
        let samples = [0.9, 1.0, 1.1].map(sample).to_vec();
        Series {
            samples,
            ..Series::new(Profile::Wire, workload, via, mode, Placement::One)
        }
        .row()
        .expect("samples")
    }

    #[test]
    fn a_row_has_the_median_of_its_samples() {
        let (workload, via, mode) = (Workload::TcpStream1, Via::Pod, Mode::Encap);
        let mut series = Series::new(Profile::Wire, workload, via, mode, Placement::Two);
        assert!(series.row().is_none(), "nothing was measured");
        let sample = |value| Sample {
            value,
            cpu: 10.0 * value,
            sent_again: 100.0 * value,
        };
        series.samples = [4.0, 1.0, 3.0, 2.0].map(sample).to_vec();
        let expected = r#"{"profile":"wire","workload":"tcp_stream_1","via":"pod","mode":"encap","cpus":"2","unit":"Gbit/s","median":2.5,"min":1.0,"max":4.0,"rates":[4.0,1.0,3.0,2.0],"cpu_per_unit":25.0,"cpu_unit":"ms/Gbit","sent_again":250.0}"#;
        let text = serde_json::to_string(&series.row()).expect("plain data");
        assert_eq!(text, expected);
        let read: Row = serde_json::from_str(&text).expect("a row");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), expected);
    }

    #[test]
    fn the_host_network_is_asked_directly_and_modes_the_same_way() {
        let rows = Rows(vec![
            row(Workload::TcpRr, Via::Pod, Mode::Host, 100.0),
            row(Workload::TcpRr, Via::Service, Mode::Host, 80.0),
            row(Workload::TcpRr, Via::Service, Mode::Kernel, 50.0),
            row(Workload::TcpRr, Via::Service, Mode::Fast, 90.0),
        ]);
        let fast = &rows.0[3];
        assert_eq!(
            (rows.ratio(fast, Mode::Host), rows.ratio(fast, Mode::Kernel)),
            (Some(0.9), Some(1.8))
        );
        assert_eq!(rows.ratio(fast, Mode::Stock), None);
        assert_eq!(rows.modes(), [Mode::Host, Mode::Kernel, Mode::Fast]);
    }

    #[test]
    fn rounds_on_a_slower_machine_change_no_ratio() {
        let mut rows = Rows(vec![
            row(Workload::TcpRr, Via::Pod, Mode::Kernel, 1.0),
            row(Workload::TcpRr, Via::Pod, Mode::Fast, 1.0),
        ]);
        rows.0[0].rates = vec![40.0, 20.0, 20.0];
        rows.0[1].rates = vec![80.0, 40.0, 60.0];
        assert_eq!(
            rows.ratios(&rows.0[1], Mode::Kernel),
            Some(vec![2.0, 2.0, 3.0])
        );
        assert_eq!(rows.ratio(&rows.0[1], Mode::Kernel), Some(2.0));
    }
}
