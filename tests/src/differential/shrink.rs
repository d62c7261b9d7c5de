//! A smaller scenario that still shows a difference. Pure: what shows it is the caller's to find
//! out.

use super::scenario::{Direction, Scenario};

/// Tries smaller scenarios until `budget` of them were tried; `still_differs` says whether one
/// shows the difference, which is one of the flow `of`, if of one. That flow with the rules that
/// may see it comes first.
///
/// # Errors
///
/// Those of `still_differs`.
pub fn shrink<E>(
    scenario: &Scenario,
    of: Option<u16>,
    budget: usize,
    mut still_differs: impl FnMut(&Scenario) -> Result<bool, E>,
) -> Result<Scenario, E> {
    let mut best = scenario.clone();
    let mut left = budget;
    for candidate in of
        .map(|flow| [alone(scenario, flow), seen(scenario, flow)])
        .into_iter()
        .flatten()
    {
        left = left.saturating_sub(1);
        if candidate != best && still_differs(&candidate)? {
            best = candidate;
            break;
        }
    }
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

/// A flow with the rules that may see it.
fn alone(scenario: &Scenario, flow: u16) -> Scenario {
    let mut alone = seen(scenario, flow);
    alone.flows.retain(|other| other.id == flow);
    alone.pruned()
}

/// All flows with the rules that may see one of them.
fn seen(scenario: &Scenario, flow: u16) -> Scenario {
    let mut seen = scenario.clone();
    if let Some(flow) = scenario.flow(flow) {
        seen.rules.retain(|rule| {
            Direction::ALL
                .iter()
                .any(|direction| rule.may_see(flow, *direction))
        });
    }
    seen
}

/// Scenarios a step smaller: the largest steps first.
fn steps(scenario: &Scenario) -> Vec<Scenario> {
    let mut steps = Vec::new();
    for parts in [2, 4, usize::MAX] {
        steps.extend(without(scenario.rules.len(), parts, |keep| Scenario {
            rules: kept(&scenario.rules, &keep),
            ..scenario.clone()
        }));
        steps.extend(without(scenario.flows.len(), parts, |keep| {
            Scenario {
                flows: kept(&scenario.flows, &keep),
                ..scenario.clone()
            }
            .pruned()
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

/// Returns one scenario for each part of a list, without that part. A list of one element is not
/// divided.
fn without(length: usize, parts: usize, make: impl Fn(Vec<bool>) -> Scenario) -> Vec<Scenario> {
    if length < 2 || parts != usize::MAX && length < 2 * parts {
        return Vec::new();
    }
    let size = length.div_ceil(parts.min(length));
    let ranges = (0..length)
        .step_by(size)
        .map(|start| start..(start + size).min(length));
    ranges
        .map(|range| make((0..length).map(|place| !range.contains(&place)).collect()))
        .collect()
}

fn kept<T: Clone>(all: &[T], keep: &[bool]) -> Vec<T> {
    all.iter()
        .zip(keep)
        .filter(|(_, keep)| **keep)
        .map(|(one, _)| one.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::differential::{generate, scenario::Scope};

    #[test]
    fn the_rule_and_the_flow_that_matter_are_left() {
        for seed in 0..20 {
            let scenario = generate::scenario(seed);
            let rule = scenario.rules.last().map(|rule| rule.id);
            let flow = match scenario.rules.last().map(|rule| &rule.scope) {
                Some(Scope::Flows(ids, _)) => ids[0],
                _ => scenario.flows[3].id,
            };
            let differs = |smaller: &Scenario| -> Result<bool, Infallible> {
                Ok(smaller.rules.iter().any(|one| Some(one.id) == rule)
                    && smaller.flow(flow).is_some())
            };
            let Ok(smallest) = shrink(&scenario, None, 200, differs);
            assert_eq!(
                (smallest.rules.len(), smallest.flows.len()),
                (1, 1),
                "seed {seed}"
            );
            assert_eq!(smallest.phases.after_silence, None);
        }
    }

    #[test]
    fn a_flow_is_tried_alone_first() {
        let scenario = generate::scenario(3);
        let mut tried = 0;
        let Ok(smallest) = shrink(
            &scenario,
            Some(4),
            1,
            |smaller| -> Result<bool, Infallible> {
                tried += 1;
                Ok(smaller.flow(4).is_some())
            },
        );
        assert_eq!((smallest.flows.len(), tried), (1, 1));
    }

    #[test]
    fn no_more_is_tried_than_asked() {
        let mut tried = 0;
        let Ok(_) = shrink(
            &generate::scenario(1),
            None,
            7,
            |_| -> Result<bool, Infallible> {
                tried += 1;
                Ok(true)
            },
        );
        assert!((1..=7).contains(&tried), "{tried}");
    }
}
