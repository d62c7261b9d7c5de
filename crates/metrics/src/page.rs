//! One answer in the making: samples by metric, and as the text that Prometheus reads.
//!
//! That is the text format 0.0.4, which every Prometheus and all that scrapes like one understand.
//! What OpenMetrics has beyond it, exemplars and units, is not used here.

use prometheus::{
    Encoder as _, TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric as Sample, MetricFamily, MetricType},
};

/// Its type, as a media type.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The description of a metric, without its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
}

impl Metric {
    pub(super) const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind: "counter",
            labels,
            help,
        }
    }

    pub(super) const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind: "gauge",
            labels,
            help,
        }
    }

    pub(super) const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind: "histogram",
            labels,
            help,
        }
    }
}

/// An answer.
#[derive(Debug, Default)]
pub(super) struct Page(Vec<MetricFamily>);

impl Page {
    /// One metric without labels.
    pub(super) fn value(&mut self, metric: Metric, value: f64) {
        self.list(metric, [([""; 0], value)]);
    }

    /// The same, for what is or is not.
    pub(super) fn boolean(&mut self, metric: Metric, is: bool) {
        self.value(metric, f64::from(u8::from(is)));
    }

    /// Adds one metric with its samples, each with its labels' values. Without samples the metric
    /// is left out.
    pub(super) fn list<const N: usize, L: AsRef<str>>(
        &mut self,
        metric: Metric,
        samples: impl IntoIterator<Item = ([L; N], f64)>,
    ) {
        debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
        let samples = samples
            .into_iter()
            .map(|(labels, value)| sample(metric, &labels, value))
            .collect();
        let mut family = MetricFamily::default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(if metric.kind == "counter" {
            MetricType::COUNTER
        } else {
            MetricType::GAUGE
        });
        family.set_metric(samples);
        self.add(family);
    }

    /// One metric that is 1 for one of these names and 0 for the others.
    pub(super) fn choose(&mut self, metric: Metric, names: &[&str], chosen: &str) {
        self.list(
            metric,
            names
                .iter()
                .map(|name| ([*name], f64::from(u8::from(*name == chosen)))),
        );
    }

    /// Adds a family that the library has put together, unless it has no samples.
    pub(super) fn add(&mut self, family: MetricFamily) {
        // The encoder knows no metric without samples.
        if !family.get_metric().is_empty() {
            self.0.push(family);
        }
    }

    /// As text, by name.
    pub(super) fn text(mut self) -> prometheus::Result<Vec<u8>> {
        self.0.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.0, &mut text)?;
        Ok(text)
    }
}

fn sample<L: AsRef<str>>(metric: Metric, labels: &[L], value: f64) -> Sample {
    let pair = |(name, value): (&&str, &L)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.as_ref().to_owned());
        pair
    };
    let mut sample = Sample::from_label(metric.labels.iter().zip(labels).map(pair).collect());
    if metric.kind == "counter" {
        let mut counter = Counter::default();
        counter.set_value(value);
        sample.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        sample.set_gauge(gauge);
    }
    sample
}

/// A number as Prometheus has it.
#[expect(
    clippy::cast_precision_loss,
    reason = "all of Prometheus is in doubles, which are exact to 9 petabytes"
)]
pub(super) const fn number(value: u64) -> f64 {
    value as f64
}

/// A number of things.
pub(super) fn length(length: usize) -> f64 {
    number(u64::try_from(length).unwrap_or(u64::MAX))
}
