//! The texts of rules by their handles, as nft lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::tool::{self, ToolError};

/// Characters of a text that are kept.
const LENGTH: usize = 300;

/// Returns the texts of the rules of a chain that have these handles. nft writes rules of
/// iptables-nft in its own words.
///
/// # Errors
/// nft cannot be run, or refuses.
pub async fn of_chain(
    nft: &Path,
    [family, table, chain]: [&str; 3],
    handles: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, String>, ToolError> {
    let mut found = BTreeMap::new();
    // Names of others could look like options.
    let list = [
        "--handle",
        "--stateless",
        "--",
        "list",
        "chain",
        family,
        table,
        chain,
    ];
    tool::each_line(nft, &list, |line| {
        found.extend(rule(line).filter(|(handle, _)| handles.contains(handle)));
    })
    .await?;
    Ok(found)
}

/// Handle and text of the rule in a line; `None` for other lines, such as those of table and chain.
fn rule(line: &str) -> Option<(u64, String)> {
    let (text, handle) = line.trim().rsplit_once(" # handle ")?;
    let kept = text.chars().filter(|char| !char.is_control()).take(LENGTH);
    (!text.ends_with('{')).then_some((handle.parse().ok()?, kept.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From nft 1.0.6.
    const LISTING: &str = r#"table inet filter { # handle 1
	chain pol { # handle 2
		ip daddr 10.2.0.2 tcp dport 81 counter drop comment "np # handle 9" # handle 4
		jump other # handle 5
	}
}"#;

    #[test]
    fn rules_are_found_by_their_handles() {
        let found: Vec<_> = LISTING.lines().filter_map(rule).collect();
        let drop = r#"ip daddr 10.2.0.2 tcp dport 81 counter drop comment "np # handle 9""#;
        assert_eq!(found, [(4, drop.to_owned()), (5, "jump other".to_owned())]);
    }

    #[test]
    fn texts_of_others_cannot_write_to_a_terminal() {
        let (_, text) = rule(&format!(
            "drop comment \"\u{1b}[2J{}\" # handle 1",
            "x".repeat(1000)
        ))
        .expect("a rule");
        assert_eq!(text.len(), LENGTH);
        assert!(text.starts_with("drop comment \"[2Jxx"), "{text}");
    }
}
