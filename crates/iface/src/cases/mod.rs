//! The choice of the node's interface and address: a table of cases, each a promise. They are the
//! tables of docs/reference/external-interface.md: after a change run this test with
//! `FLANNEL_WRITE_DOCS=1`.

mod host;
mod table;

use std::time::{Duration, Instant};

use flannel_host::family::Family;
use flannel_json_schema::page;

use self::{
    host::host,
    table::{CHOICES, ChoiceCase, FOLLOWINGS, Following},
};
use super::{ExternalInterface, Follower, Host, IfaceOptions, NamePattern, select};

/// Between looks, as in the agent while time decides.
const LOOK: Duration = Duration::from_millis(500);
/// After the last step.
const END: Duration = Duration::from_mins(1);

fn options(text: &str) -> IfaceOptions {
    let none = IfaceOptions::default();
    match text.split_once('=') {
        None => none,
        Some(("--iface", value)) => IfaceOptions {
            iface: vec![value.to_owned()],
            ..none
        },
        Some(("--iface-regex", value)) => IfaceOptions {
            patterns: vec![NamePattern::new(value).expect("a pattern")],
            ..none
        },
        Some(_) => panic!("{text}"),
    }
}

/// The family of a case: that of what it expects.
fn family(text: &str) -> Family {
    if text.contains("IPv6") {
        Family::V6
    } else {
        Family::V4
    }
}

fn describe(chosen: &ExternalInterface) -> String {
    let ends: Vec<_> = chosen
        .ends
        .values()
        .map(|end| end.addr.to_string())
        .collect();
    format!("{} {}", chosen.name, ends.join(" "))
}

#[test]
fn each_host_leads_to_its_choice() {
    for ChoiceCase {
        situation,
        options: given,
        host: text,
        chosen,
    } in CHOICES
    {
        let found = match select(&options(given), &[family(situation)], &host(text)) {
            Ok(found) => describe(&found),
            Err(error) => format!(
                "{}: {error}",
                if error.can_pass() { "waits" } else { "error" }
            ),
        };
        let is_right = if chosen.contains(": ") {
            found.starts_with(chosen)
        } else {
            found == chosen
        };
        assert!(is_right, "{situation}: {text}\n{found}\nright: {chosen}");
    }
}

#[test]
fn each_change_leads_to_its_choice_in_time() {
    for Following {
        situation,
        before,
        steps,
        chosen,
        within,
    } in FOLLOWINGS
    {
        let first = host(before);
        let mut follower =
            Follower::choose(IfaceOptions::default(), vec![family(situation)], &first)
                .expect(situation);
        let mut now = Instant::now();
        let mut run = |host: &Host, time: Duration| {
            let (start, mut changed) = (now, None);
            while now < start + time {
                let former = describe(follower.chosen());
                follower.look(host, now);
                if describe(follower.chosen()) != former {
                    changed = Some(now - start);
                }
                now += LOOK;
            }
            (describe(follower.chosen()), changed)
        };
        let mut seen = first;
        let mut history = Vec::new();
        for (after, next) in steps {
            history.push(run(&seen, Duration::from_secs(*after)));
            seen = host(next);
        }
        let (last, changed) = run(&seen, END);
        history.push((last.clone(), changed));
        assert_eq!(last, chosen, "{situation}: {history:?}");
        let took = changed.unwrap_or_default();
        assert!(
            took <= Duration::from_secs(within.unwrap_or_default()),
            "{situation}: {history:?}"
        );
        let is_kept = history.iter().all(|(_, changed)| changed.is_none());
        assert!(within.is_some() || is_kept, "{situation}: {history:?}");
    }
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|").replace('\n', " "))
}

fn choice_row(
    ChoiceCase {
        situation,
        options,
        host,
        chosen,
    }: &ChoiceCase,
) -> String {
    let options = if options.is_empty() {
        String::new()
    } else {
        format!("{}, on ", code(options))
    };
    let chosen = match chosen.split_once(": ") {
        Some(("error", error)) => format!("refused: {}", code(error)),
        Some((_, error)) => format!("none yet: {}", code(error)),
        None => code(chosen),
    };
    format!("| {situation} | {options}{} | {chosen} |\n", code(host))
}

fn following_row(
    Following {
        situation,
        before,
        steps,
        chosen,
        within,
    }: &Following,
) -> String {
    let steps: Vec<_> = steps
        .iter()
        .map(|(after, host)| format!("after {after} s {}", code(host)))
        .collect();
    let within = match within {
        None => "never another".to_owned(),
        Some(0) => "at once".to_owned(),
        Some(seconds) => format!("{seconds} s"),
    };
    format!(
        "| {situation} | {} | {} | {} | {within} |\n",
        code(before),
        steps.join(", "),
        code(chosen)
    )
}

fn tables() -> [(&'static str, String); 2] {
    let choices = CHOICES.iter().map(choice_row).collect::<String>();
    let followings = FOLLOWINGS.iter().map(following_row).collect::<String>();
    [
        (
            "choices",
            format!("| situation | the host | chosen |\n|---|---|---|\n{choices}"),
        ),
        (
            "changes",
            format!(
                "| what happens | before | then | in the end | at most \
                 |\n|---|---|---|---|---|\n{followings}"
            ),
        ),
    ]
}

#[test]
fn the_page_has_the_cases_as_they_are() {
    page::check("external-interface.md", &tables());
}
