//! The differences between leases, maps and kernel.

use flannel_command::{Answer, json};
use flannel_host::words::count;
use flannel_inspect::diff::{self, Diff, Difference};
use flannel_observe::socket::ask_status;
use flannel_terminal::table;

use super::dump_place::DumpPlace;

/// Compares, and ends with 1 if something differs.
pub(super) async fn run(place: &DumpPlace) -> anyhow::Result<Answer> {
    // Without an agent the maps are compared only with the kernel, and the output says so.
    let status = ask_status(&place.state.state_dir).await.ok();
    let found = diff::read(&place.pins.root_of(status.as_ref()), status.as_ref()).await?;
    let text = if place.output.is_json() {
        json(&found)
    } else {
        text(&found)
    };
    Ok(Answer {
        text,
        code: u8::from(!found.differences.is_empty()),
    })
}

fn text(diff: &Diff) -> String {
    let against = match (diff.leases, diff.maps) {
        (true, true) => "leases, maps and kernel",
        (true, false) => "leases and kernel (the agent runs without eBPF, so there are no maps)",
        (false, _) => "maps and kernel (no agent answers for the leases)",
    };
    if diff.differences.is_empty() {
        return format!(
            "{against} agree about {}\n",
            count(diff.peers, "peer", "peers")
        );
    }
    let cells = |one: &Difference| {
        let said = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        [
            one.place.name().to_owned(),
            one.object.clone(),
            said(&one.found),
            said(&one.wanted),
        ]
    };
    let rows: Vec<_> = diff.differences.iter().map(cells).collect();
    table::render(["PLACE", "OBJECT", "IS", "SHOULD-BE"], &rows)
}
