//! The tables of `docs/reference/firewall-rules.md`, made from the catalogue.
//!
//! A row that changed fails here until the page is written again: run this test with
//! `FLANNEL_WRITE_DOCS=1`.

use flannel_json_schema::page;

use super::{ElementKind, Entry, Rating};

fn title(kind: ElementKind) -> &'static str {
    match kind {
        ElementKind::Match => "Matches of iptables and ip6tables",
        ElementKind::Target => "Targets of iptables and ip6tables",
        ElementKind::Bridge => "Matches, watchers and targets of ebtables",
        ElementKind::Statement => "Statements of nft",
        ElementKind::Field => "Expressions of nft",
        ElementKind::Rewrite => "Fields that nft writes",
    }
}

fn row(entry: &Entry) -> String {
    let verdict = match entry.rating {
        Rating::Exact => "exact",
        Rating::PerPacket => "**per-packet**",
        Rating::PerTunnelPacket => "exact; per-packet for tunnel packets",
        Rating::Depends(_) => "depends",
    };
    format!("| `{}` | {verdict} | {} |\n", entry.name, entry.why)
}

fn render() -> String {
    let table = |(kind, tables): (ElementKind, &'static [&'static [Entry]])| {
        let rows: String = tables.iter().copied().flatten().map(row).collect();
        format!(
            "\n### {}\n\n| element | verdict | reason |\n|---|---|---|\n{rows}",
            title(kind)
        )
    };
    ElementKind::ALL.into_iter().map(table).collect::<String>() + "\n"
}

#[test]
fn the_page_has_the_catalogue_as_it_is() {
    page::check("firewall-rules.md", &[("catalogue", render())]);
}
