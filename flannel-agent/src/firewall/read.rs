//! Reading the rules by whatever tools there are.

use std::path::PathBuf;

use super::{ebtables, model::Ruleset, nft, save};
use crate::rules::tool;

/// The tools of iptables, and the families they serve.
const IPTABLES: [(&str, &str); 2] = [("ip", "iptables"), ("ip6", "ip6tables")];
/// The same of bridges.
const EBTABLES: (&str, &str) = ("bridge", "ebtables");

impl Ruleset {
    /// Returns the rules of this network namespace, none where no tool is, and the errors of tools.
    pub async fn read() -> (Option<Self>, Vec<String>) {
        let mut reading = Reading::default();
        let is_complete = reading.read_nft().await;
        for (family, base) in IPTABLES.into_iter().chain([EBTABLES]) {
            for tool in savers(base, is_complete) {
                reading.add_saved(family, &tool).await;
            }
        }
        (reading.rules, reading.errors)
    }
}

#[derive(Default)]
struct Reading {
    rules: Option<Ruleset>,
    errors: Vec<String>,
}

impl Reading {
    /// Reads the rules of nftables, those of iptables' newer variant among them; false if that
    /// fails.
    async fn read_nft(&mut self) -> bool {
        let Some(tool) = tool::find("nft") else { return false };
        let read = tool::run(&tool, &["-j", "list", "ruleset"], "").await.map_err(|error| error.to_string());
        let parse = |text: String| nft::parse(&text).ok_or("nft -j printed what is not understood here".to_owned());
        match read.and_then(parse) {
            Ok(mut rules) => {
                reveal(&mut rules).await;
                self.rules = Some(rules);
                true
            }
            Err(error) => {
                self.errors.push(error);
                false
            }
        }
    }

    async fn add_saved(&mut self, family: &str, tool: &std::path::Path) {
        match tool::run(tool, &[], "").await {
            Ok(text) => self.rules.get_or_insert_default().extend(parse(family, &text)),
            Err(error) => self.errors.push(error.to_string()),
        }
    }
}

/// Asks the tools that wrote them for the options nft does not show. Others stay hidden, and are
/// named as such.
async fn reveal(rules: &mut Ruleset) {
    let families = rules.families_with_hidden();
    for (family, base) in IPTABLES.into_iter().chain([EBTABLES]).filter(|(family, _)| families.contains(*family)) {
        let Some(tool) = nft_saver(base) else { continue };
        match tool::run(&tool, &[], "").await {
            Ok(text) => rules.reveal(parse(family, &text)),
            Err(error) => tracing::debug!(%error, "options of rules stay unknown"),
        }
    }
}

fn parse(family: &str, text: &str) -> Ruleset {
    if family == EBTABLES.0 { ebtables::parse(text) } else { save::parse(family, text) }
}

/// The tools that list what nft did not: the legacy variant, or all there are.
fn savers(base: &str, nft_is_read: bool) -> Vec<PathBuf> {
    let legacy = tool::find(&format!("{base}-legacy-save"));
    let plain = tool::find(&format!("{base}-save"));
    if nft_is_read {
        return legacy.or_else(|| plain.filter(|path| !tool::is_of_nftables(path))).into_iter().collect();
    }
    let nft = tool::find(&format!("{base}-nft-save"));
    let both: Vec<PathBuf> = nft.into_iter().chain(legacy).collect();
    if both.is_empty() { plain.into_iter().collect() } else { both }
}

fn nft_saver(base: &str) -> Option<PathBuf> {
    let plain = || tool::find(&format!("{base}-save")).filter(|path| tool::is_of_nftables(path));
    tool::find(&format!("{base}-nft-save")).or_else(plain)
}
