//! The rows of a run as a chart (SVG): a panel per profile, bars in parts of the host network's
//! rate.
//!
//! Colours follow the reader's choice of light or dark; the background is part of the picture, so
//! it is legible where that choice is not known.

use std::fmt::Write as _;

use super::{
    plan::{Mode, Profile, Via, Workload},
    report::{Rows, median},
    table::{self, Shown},
};

const WIDTH: f64 = 988.0;
/// The x coordinate at which the panels begin; names are left of it.
const LEFT: f64 = 240.0;
const TOP: f64 = 96.0;
/// Of one bar, with its share of the gap to the next.
const BAR: f64 = 11.0;
/// Between the bars of one line and the next.
const GAP: f64 = 8.0;
/// Between workloads.
const BREAK: f64 = 8.0;
/// The width of a panel, including the column next to its bars.
const PANEL: f64 = 362.0;
/// The column with the ratio of mode `fast` to mode `kernel`.
const COLUMN: f64 = 56.0;
/// The host network's rate in a panel; what is beyond has still room.
const FULL: f64 = 268.0;

const STYLE: &str = "\
<style>
svg { font-family: system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; \
font-size: 12px; }
.back { fill: #ffffff; } text { fill: #1f2328; } .quiet { fill: #59636e; } .small \
{ font-size: 10px; }
.halo { font-size: 10px; fill: #ffffff; stroke: #ffffff; stroke-width: 3px; \
stroke-linejoin: round; }
.title { font-size: 15px; font-weight: 600; } .strong { font-weight: 600; }
.grid { stroke: #d1d9e0; stroke-width: 1; } .host { stroke: #1f2328; stroke-width: 1.5; }
.spread { stroke: #1f2328; stroke-width: 1; opacity: 0.55; }
.stock { fill: #b7a57a; } .kernel { fill: #8c959f; } .encap { fill: #54a0d6; } .fast \
{ fill: #d9652b; }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117; } .halo { fill: #0d1117; stroke: #0d1117; } text { fill: #e6edf3; } .quiet \
{ fill: #9198a1; }
.grid { stroke: #30363d; } .host { stroke: #e6edf3; } .spread { stroke: #e6edf3; }
.stock { fill: #a08f62; } .kernel { fill: #6e7681; } .encap { fill: #4493d0; } .fast \
{ fill: #e8773d; }
}
</style>
";

/// The chart of a run; modes, workloads and profiles that were not measured are left out.
pub(super) fn svg(rows: &Rows) -> String {
    let modes: Vec<Mode> = rows
        .modes()
        .into_iter()
        .filter(|mode| *mode != Mode::Host)
        .collect();
    let lines = lines(rows, modes.len());
    let bottom = lines.last().map_or(TOP, |line| line.top) + height(modes.len());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {h}\" width=\"{WIDTH}\" \
         height=\"{h}\" \
         role=\"img\" aria-label=\"Rates of each mode in parts of the host network's\">\n{STYLE}\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{h}\" rx=\"6\"/>\n",
        h = bottom + 52.0
    );
    text(
        &mut svg,
        (24.0, 30.0),
        "title",
        "Pod to pod across two nodes, in parts of the host network's rate",
    );
    legend(&mut svg, &modes);
    for line in &lines {
        name(&mut svg, line, modes.len());
    }
    let profiles: Vec<Profile> = Profile::ALL
        .into_iter()
        .filter(|profile| rows.has(|row| row.profile == *profile))
        .collect();
    for (profile, left) in profiles.into_iter().zip([LEFT, LEFT + PANEL + 12.0]) {
        panel(&mut svg, rows, profile, left, bottom);
        for line in &lines {
            bars(&mut svg, rows, (profile, &modes), line, left);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// One workload asked one way.
struct Line {
    workload: Workload,
    via: Via,
    top: f64,
    /// The first of its workload has the workload's name.
    is_first: bool,
}

fn lines(rows: &Rows, modes: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut top = TOP;
    for workload in Workload::ALL {
        let mut is_first = true;
        for via in Via::ALL {
            if rows.has(|row| (row.workload, row.via) == (workload, via) && row.mode != Mode::Host)
            {
                lines.push(Line {
                    workload,
                    via,
                    top,
                    is_first,
                });
                top += height(modes) + GAP;
                is_first = false;
            }
        }
        top += if is_first { 0.0 } else { BREAK };
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "a handful of bars")]
fn height(modes: usize) -> f64 {
    modes as f64 * BAR
}

fn legend(svg: &mut String, modes: &[Mode]) {
    let mut left = 24.0;
    for mode in modes {
        writeln!(
            svg,
            "<rect class=\"{mode}\" x=\"{left}\" y=\"45\" width=\"12\" height=\"12\" rx=\"2\"/>"
        )
        .expect("text grows");
        text(svg, (left + 18.0, 55.0), "", mode.title());
        left += 120.0;
    }
    writeln!(
        svg,
        "<line class=\"host\" x1=\"{left}\" y1=\"51\" x2=\"{}\" y2=\"51\"/>",
        left + 14.0
    )
    .expect("text grows");
    text(svg, (left + 20.0, 55.0), "", "host network");
    text(
        svg,
        (left + 120.0, 55.0),
        "quiet small",
        "thin line: lowest to highest of all rounds",
    );
}

fn name(svg: &mut String, line: &Line, modes: usize) {
    let middle = line.top + height(modes) / 2.0 + 4.0;
    if line.is_first {
        text(svg, (24.0, middle), "strong", line.workload.title());
    }
    let via = match line.via {
        Via::Pod => "",
        Via::Service => "through a Service",
    };
    text(
        svg,
        (if line.is_first { LEFT } else { 24.0 }, middle),
        "quiet",
        via,
    );
}

/// Title, grid, axis and the head of the column.
fn panel(svg: &mut String, rows: &Rows, profile: Profile, left: f64, bottom: f64) {
    let title = match profile {
        Profile::Offload => "offload: large segments cross whole",
        Profile::Wire => "wire: packets of 1500 bytes",
    };
    text(svg, (left, TOP - 14.0), "strong", title);
    for (part, class) in [
        (0.0, "grid"),
        (0.25, "grid"),
        (0.5, "grid"),
        (0.75, "grid"),
        (1.0, "host"),
    ] {
        let x = left + part * FULL;
        let (from, to) = (TOP - 6.0, bottom + 6.0);
        writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{x}\" y1=\"{from}\" x2=\"{x}\" y2=\"{to}\"/>"
        )
        .expect("text grows");
        middle(svg, (x, bottom + 22.0), "quiet small", &format!("{part}"));
    }
    middle(
        svg,
        (left + FULL / 2.0, bottom + 38.0),
        "quiet small",
        "rate, host network = 1",
    );
    if rows.has(|row| row.mode == Mode::Kernel) && rows.has(|row| row.mode == Mode::Fast) {
        middle(
            svg,
            (left + PANEL - COLUMN / 2.0, TOP - 14.0),
            "quiet small",
            "fast / kernel",
        );
    }
}

fn bars(
    svg: &mut String,
    rows: &Rows,
    (profile, modes): (Profile, &[Mode]),
    line: &Line,
    left: f64,
) {
    let mut y = line.top;
    for mode in modes {
        let row = rows.find(profile, line.workload, line.via, *mode);
        if let Some(ratios) = row.and_then(|row| rows.ratios(row, Mode::Host)) {
            bar(svg, *mode, &ratios, (left, y));
        }
        y += BAR;
    }
    let shown = |mode| Shown::find(rows, profile, (line.workload, line.via), mode);
    if let Some(quotient) = table::quotient(shown(Mode::Fast), shown(Mode::Kernel)) {
        let at = (
            left + PANEL - COLUMN / 2.0,
            f64::midpoint(line.top, y) + 4.0,
        );
        middle(svg, at, "strong", &format!("{quotient:.2} \u{d7}"));
    }
}

/// A bar as long as the median of these, sorted; the spread across its end, and its figure behind
/// that.
fn bar(svg: &mut String, mode: Mode, ratios: &[f64], (left, y): (f64, f64)) {
    let (Some(lowest), Some(highest)) = (ratios.first(), ratios.last()) else {
        return;
    };
    let width = |ratio: f64| (ratio * FULL).min(PANEL - COLUMN - 26.0);
    let (ratio, thick, centre) = (median(ratios), BAR - 2.0, y + (BAR - 2.0) / 2.0);
    writeln!(
        svg,
        "<rect class=\"{mode}\" x=\"{left}\" y=\"{y}\" width=\"{:.1}\" height=\"{thick}\" \
         rx=\"1\"/>\
         <line class=\"spread\" x1=\"{:.1}\" y1=\"{centre}\" x2=\"{:.1}\" y2=\"{centre}\"/>",
        width(ratio),
        left + width(*lowest),
        left + width(*highest)
    )
    .expect("text grows");
    let at = (figure_start(width(*highest)) + left, centre + 3.5);
    // Twice, so that it is legible on a line.
    for class in ["halo", "small"] {
        text(svg, at, class, &format!("{ratio:.2}"));
    }
}

/// The place of a figure behind a spread that ends here: not on the line of the host network.
fn figure_start(end: f64) -> f64 {
    const FIGURE: f64 = 24.0;
    let start = end + 4.0;
    if start < FULL + 4.0 && start + FIGURE > FULL {
        FULL + 4.0
    } else {
        start
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>"
    )
    .expect("text grows");
}

fn middle(svg: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{words}</text>"
    )
    .expect("text grows");
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::row, *};

    #[test]
    fn no_figure_stands_on_the_line_of_the_host_network() {
        assert!((figure_start(100.0) - 104.0).abs() < 0.1);
        for end in [FULL - 27.0, FULL - 4.0, FULL] {
            assert!((figure_start(end) - FULL - 4.0).abs() < 0.1, "{end}");
        }
        assert!((figure_start(FULL + 9.0) - FULL - 13.0).abs() < 0.1);
    }

    #[test]
    fn a_bar_is_as_long_as_its_part_of_the_host_network() {
        let rows = Rows(vec![
            row(Workload::UdpRr, Via::Pod, Mode::Host, 100.0),
            row(Workload::UdpRr, Via::Pod, Mode::Kernel, 50.0),
            row(Workload::UdpRr, Via::Pod, Mode::Fast, 90.0),
        ]);
        let svg = svg(&rows);
        let bar = |mode: &str, part: f64| {
            let expected = format!("width=\"{:.1}\"", part * FULL);
            svg.lines().any(|line| {
                line.contains(&format!("rect class=\"{mode}\"")) && line.contains(&expected)
            })
        };
        assert!(bar("kernel", 0.5) && bar("fast", 0.9), "{svg}");
        assert!(
            svg.contains(">1.80 \u{d7}<") && svg.contains("UDP request/response"),
            "{svg}"
        );
        for absent in ["class=\"stock\"", "TCP", "through a Service", "offload"] {
            assert!(!svg.contains(absent), "{absent} was not measured: {svg}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }
}
