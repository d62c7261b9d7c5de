//! A smaller scenario that still shows a difference. Pure: what shows it is the caller's to find out.

use super::scenario::Scenario;

/// Tries smaller scenarios until `budget` of them were tried; `still_differs` says whether one shows the difference.
///
/// # Errors
///
/// Those of `still_differs`.
pub fn shrink<E>(
    scenario: &Scenario,
    budget: usize,
    mut still_differs: impl FnMut(&Scenario) -> Result<bool, E>,
) -> Result<Scenario, E> {
    let mut best = scenario.clone();
    let mut left = budget;
    loop {
        let before = best.clone();
        for candidate in steps(&before) {
            if left == 0 {
                return Ok(best);
            }
            left -= 1;
            if still_differs(&candidate)? {
                best = candidate;
                break;
            }
        }
        if best == before {
            return Ok(best);
        }
    }
}

/// Scenarios a step smaller: the largest steps first.
fn steps(scenario: &Scenario) -> Vec<Scenario> {
    let mut steps = Vec::new();
    for parts in [2, 4, usize::MAX] {
        steps.extend(without(scenario.rules.len(), parts, |keep| Scenario {
            rules: kept(&scenario.rules, &keep),
            ..scenario.clone()
        }));
        steps.extend(without(scenario.flows.len(), parts, |keep| Scenario {
            flows: kept(&scenario.flows, &keep),
            ..scenario.clone()
        }));
    }
    if scenario.phases.after_silence.is_some() {
        let mut shorter = scenario.clone();
        shorter.phases.after_silence = None;
        steps.insert(0, shorter);
    }
    steps.dedup();
    steps
}

/// What is left without each of so many parts of a list. A list of one loses nothing.
fn without(length: usize, parts: usize, make: impl Fn(Vec<bool>) -> Scenario) -> Vec<Scenario> {
    if length < 2 || parts != usize::MAX && length < 2 * parts {
        return Vec::new();
    }
    let size = length.div_ceil(parts.min(length));
    let ranges = (0..length).step_by(size).map(|start| start..(start + size).min(length));
    ranges.map(|range| make((0..length).map(|place| !range.contains(&place)).collect())).collect()
}

fn kept<T: Clone>(all: &[T], keep: &[bool]) -> Vec<T> {
    all.iter().zip(keep).filter(|(_, keep)| **keep).map(|(one, _)| one.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::differential::generate;

    #[test]
    fn the_rule_and_the_flow_that_matter_are_left() {
        for seed in 0..20 {
            let scenario = generate::scenario(seed);
            let (rule, flow) = (scenario.rules.last().map(|rule| rule.id), scenario.flows[3].id);
            let differs = |smaller: &Scenario| -> Result<bool, Infallible> {
                Ok(smaller.rules.iter().any(|one| Some(one.id) == rule) && smaller.flow(flow).is_some())
            };
            let Ok(smallest) = shrink(&scenario, 200, differs);
            assert_eq!((smallest.rules.len(), smallest.flows.len()), (1, 1), "seed {seed}");
            assert_eq!(smallest.phases.after_silence, None);
        }
    }

    #[test]
    fn no_more_is_tried_than_asked() {
        let mut tried = 0;
        let Ok(_) = shrink(&generate::scenario(1), 7, |_| -> Result<bool, Infallible> {
            tried += 1;
            Ok(true)
        });
        assert_eq!(tried, 7);
    }
}
