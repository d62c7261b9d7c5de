//! That pending is what differs, whatever happened before.

use proptest::{collection::btree_map, prelude::*};

use super::*;

type Numbers = BTreeMap<u8, u8>;

fn tracker(desired: &Numbers, actual: Numbers) -> Tracker<u8, u8> {
    let mut tracker = Tracker::default();
    tracker.change(&Numbers::new(), desired);
    tracker.found(actual);
    tracker
}

#[test]
fn nothing_is_deleted_before_the_sweep() {
    let tracker = tracker(&Numbers::new(), Numbers::from([(1, 1)]));
    assert!(tracker.pending(Instant::now(), false).deletes.is_empty());
    assert_eq!(tracker.pending(Instant::now(), true).deletes, [(1, 1)]);
}

#[test]
fn a_refused_entry_waits_longer_each_time_and_holds_up_no_other() {
    let start = Instant::now();
    let mut tracker = tracker(&Numbers::from([(1, 1), (2, 2)]), Numbers::new());
    assert!(tracker.failed(&1, "no".to_owned(), start));
    assert_eq!(tracker.pending(start, true).upserts, [(2, 2)]);
    assert_eq!(tracker.next_retry(), Some(start + FIRST_WAIT));
    assert_eq!(
        tracker.pending(start + FIRST_WAIT, true).upserts,
        [(1, 1), (2, 2)]
    );
    assert!(!tracker.failed(&1, "no".to_owned(), start));
    assert_eq!(tracker.next_retry(), Some(start + 2 * FIRST_WAIT));
    for _ in 0..40 {
        tracker.failed(&1, "no".to_owned(), start);
    }
    assert_eq!(tracker.next_retry(), Some(start + LAST_WAIT));
    tracker.made(&1, 1);
    assert_eq!(tracker.next_retry(), None);
}

#[test]
fn what_is_wanted_is_there_once_it_was_made_whatever_else_is_there() {
    let mut tracker = tracker(
        &Numbers::from([(1, 1), (2, 2)]),
        Numbers::from([(2, 2), (3, 3)]),
    );
    assert!(!tracker.has_wanted(), "one is missing");
    tracker.made(&1, 1);
    assert!(tracker.has_wanted());
    tracker.observe(2, Some(9));
    assert!(!tracker.has_wanted(), "one is different");
}

#[test]
fn a_refused_entry_that_nobody_wants_any_more_is_forgotten() {
    let mut tracker = tracker(&Numbers::from([(1, 1)]), Numbers::new());
    tracker.failed(&1, "no".to_owned(), Instant::now());
    tracker.clear_desired();
    assert_eq!(tracker.failures().count(), 0);
}

#[test]
fn what_another_program_removed_or_changed_is_pending_again() {
    let mut tracker = tracker(
        &Numbers::from([(1, 1), (2, 2)]),
        Numbers::from([(1, 1), (2, 2)]),
    );
    assert!(tracker.observe(1, None));
    assert!(tracker.observe(2, Some(9)));
    assert!(!tracker.observe(3, None), "not ours and gone");
    assert_eq!(
        tracker.pending(Instant::now(), true).upserts,
        [(1, 1), (2, 2)]
    );
}

#[test]
fn a_repair_is_what_was_right_and_is_made_again() {
    let wanted = Numbers::from([(1, 1), (2, 2), (3, 3)]);
    let mut tracker = tracker(&wanted, Numbers::new());
    let make = |tracker: &mut Tracker<u8, u8>, key| tracker.made(&key, key);
    for key in 1..=3 {
        make(&mut tracker, key);
        assert!(
            !tracker.observe(key, Some(key)),
            "what the kernel says of our own doing"
        );
    }
    assert_eq!(tracker.repairs(), 0, "made for the first time");
    tracker.observe(1, None);
    tracker.observe(1, Some(9));
    tracker.found(Numbers::from([(1, 9), (2, 2)]));
    assert_eq!(tracker.repairs(), 0, "not mended yet");
    make(&mut tracker, 1);
    make(&mut tracker, 3);
    assert_eq!(
        tracker.repairs(),
        2,
        "one that was announced, one that was read back"
    );
    tracker.observe(2, None);
    tracker.observe(2, Some(2));
    tracker.set_desired(&2, Some(7));
    tracker.made(&2, 7);
    tracker.observe(7, Some(7));
    tracker.removed(&7);
    assert_eq!(
        tracker.repairs(),
        2,
        "mended by somebody else; wanted otherwise; never ours"
    );
}

/// Returns the desired and the actual state, written out in full.
fn sides(tracker: &Tracker<u8, u8>) -> [Numbers; 2] {
    let actual = (0..=u8::MAX)
        .filter_map(|key| Some((key, *tracker.actual(&key)?)))
        .collect();
    [tracker.wanted().clone(), actual]
}

/// Something that happens to a tracker.
#[derive(Clone, Debug)]
enum Event {
    WantNothing,
    Change(Numbers),
    WantOne(u8, Option<u8>),
    Found(Numbers),
    Observe(u8, Option<u8>),
    Made(u8, u8),
    Removed(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let (key, value) = (0_u8..8, 0_u8..3);
    let numbers = btree_map(key.clone(), value.clone(), 0..8);
    let maybe = proptest::option::of(value.clone());
    prop_oneof![
        Just(Event::WantNothing),
        numbers.clone().prop_map(Event::Change),
        numbers.prop_map(Event::Found),
        (key.clone(), maybe.clone()).prop_map(|(key, value)| Event::WantOne(key, value)),
        (key.clone(), maybe).prop_map(|(key, value)| Event::Observe(key, value)),
        (key.clone(), value).prop_map(|(key, value)| Event::Made(key, value)),
        key.prop_map(Event::Removed),
    ]
}

proptest! {
    #[test]
    fn both_sides_are_what_they_would_be_as_two_whole_maps(
        events in proptest::collection::vec(event(), 0..30),
    ) {
        let mut tracker = Tracker::default();
        let [mut desired, mut actual] = [Numbers::new(), Numbers::new()];
        for event in events {
            match event.clone() {
                Event::WantNothing => {
                    tracker.clear_desired();
                    desired = Numbers::new();
                }
                Event::Change(numbers) => {
                    tracker.change(&desired, &numbers);
                    desired = numbers;
                }
                Event::WantOne(key, value) => {
                    tracker.set_desired(&key, value);
                    desired.retain(|other, _| *other != key);
                    desired.extend(value.map(|value| (key, value)));
                }
                Event::Found(numbers) => {
                    tracker.found(numbers.clone());
                    actual = numbers;
                }
                Event::Observe(key, value) => {
                    let differs = tracker.observe(key, value);
                    prop_assert_eq!(differs, desired.get(&key).copied() != value);
                    actual.retain(|other, _| *other != key);
                    actual.extend(value.map(|value| (key, value)));
                }
                Event::Made(key, value) => {
                    tracker.made(&key, value);
                    actual.insert(key, value);
                }
                Event::Removed(key) => {
                    tracker.removed(&key);
                    actual.remove(&key);
                }
            }
            prop_assert_eq!(
                sides(&tracker),
                [desired.clone(), actual.clone()],
                "{:?}",
                event
            );
            let pending = tracker.pending(Instant::now(), true);
            let upserts = desired
                .iter()
                .filter(|(key, value)| actual.get(*key) != Some(*value));
            let deletes = actual.iter().filter(|(key, _)| !desired.contains_key(*key));
            prop_assert_eq!(
                pending.upserts,
                upserts
                    .map(|(key, value)| (*key, *value))
                    .collect::<Vec<_>>()
            );
            prop_assert_eq!(
                pending.deletes,
                deletes
                    .map(|(key, value)| (*key, *value))
                    .collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn doing_what_is_pending_makes_both_sides_equal(
        desired in btree_map(any::<u8>(), any::<u8>(), 0..40),
        actual in btree_map(any::<u8>(), any::<u8>(), 0..40),
    ) {
        let mut tracker = tracker(&desired, actual);
        let pending = tracker.pending(Instant::now(), true);
        for (key, value) in pending.upserts {
            tracker.made(&key, value);
        }
        for (key, _) in pending.deletes {
            tracker.removed(&key);
        }
        prop_assert_eq!(sides(&tracker), [desired.clone(), desired]);
        let left = tracker.pending(Instant::now(), true);
        prop_assert!(left.upserts.is_empty() && left.deletes.is_empty());
    }
}
