//! Problems as lines: some of each kind, and how many more there are.

use flannel_status::Severity;
use flannel_terminal::color::Paint;

/// Problems that are printed of each kind.
const OF_KIND: usize = 5;

/// A problem to print.
pub struct ProblemLine<C> {
    /// Its kind. Problems of one kind follow each other.
    pub code: C,
    /// Its effect.
    pub severity: Severity,
    /// The problem in words.
    pub text: String,
    /// The number of alike problems that it stands for.
    pub count: u64,
}

/// The lines.
pub fn lines<C: PartialEq>(problems: &[ProblemLine<C>], paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for of_kind in problems.chunk_by(|a, b| a.code == b.code) {
        let painted = |problem: &ProblemLine<C>| match problem.severity {
            Severity::Notice => paint.warn(&problem.text),
            Severity::Warning | Severity::Critical => paint.bad(&problem.text),
        };
        lines.extend(of_kind.iter().take(OF_KIND).map(painted));
        let more: u64 = of_kind
            .iter()
            .skip(OF_KIND)
            .map(|problem| problem.count)
            .sum();
        lines.extend(
            (more > 0)
                .then(|| paint.bad(&format!("and {more} more of this kind; -o json lists them"))),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_a_kind_are_cut_and_counted() {
        let problem = |code, text: &str, count| ProblemLine {
            code,
            severity: Severity::Warning,
            text: text.to_owned(),
            count,
        };
        let mut problems: Vec<_> = (0..9)
            .map(|number| problem(1, &format!("a{number}"), 1))
            .collect();
        problems.push(problem(1, "7 more", 7));
        problems.push(problem(2, "b", 1));
        let expected = [
            "a0",
            "a1",
            "a2",
            "a3",
            "a4",
            "and 11 more of this kind; -o json lists them",
            "b",
        ];
        assert_eq!(lines(&problems, Paint(false)), expected);
    }
}
