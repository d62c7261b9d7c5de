//! The rights that the guide on clusters lists, given to a user who has no others.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Output, eventually, kubernetes::Kubernetes};
use serde_json::{Value, json};

use super::{LIMIT, binary, explain::servers};

const PAGE: &str = "../docs/guides/cluster.md";
/// The name in the page.
const USER: &str = "NAME";

/// The blocks of YAML in the page.
fn blocks() -> Result<Vec<String>> {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).context(PAGE)?;
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
    Ok(blocks.collect())
}

/// The kubeconfig of a service account, next to that of the administrator.
fn kubeconfig(cluster: &Kubernetes, account: &str) -> Result<String> {
    let text = eventually("a token of the service account", LIMIT, || {
        let found = cluster.kubectl().get(["serviceaccount", account])?;
        let secret = found["secrets"][0]["name"]
            .as_str()
            .context("a secret")?
            .to_owned();
        let command = [
            "get",
            "secret",
            &secret,
            "--output=go-template={{.data.token | base64decode}}",
        ];
        cluster.kubectl().run(command)
    })?;
    let path = cluster
        .kubectl()
        .credentials()
        .split_once('=')
        .context("a path")?
        .1;
    let mut config: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let name = config["users"][0]["name"].clone();
    config["users"] = json!([{ "name": name, "user": { "token": text } }]);
    let file = cluster.lab.large_files(account)?.join("kubeconfig");
    fs::write(&file, config.to_string())?;
    Ok(file.display().to_string())
}

/// Runs the agent's program outside the cluster, with this flag at the end.
fn run_with(cluster: &Kubernetes, flag: &str, words: &[&str], code: i32) -> Result<Output> {
    let binary = binary()?;
    let line = [binary.as_str()]
        .into_iter()
        .chain(words.iter().copied())
        .chain([flag]);
    cluster
        .outside
        .command(line)
        .limit(LIMIT)
        .expect_code(code)
        .run()
}

pub(crate) fn the_rights_of_the_guide_suffice(cluster: &Kubernetes) -> Result<()> {
    let blocks = blocks()?;
    ensure!(blocks.len() == 2, "{} blocks in {PAGE}", blocks.len());
    let account = "operator";
    cluster
        .kubectl()
        .run(["create", "serviceaccount", account])?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig(cluster, account)?);
    let user = format!("system:serviceaccount:default:{account}");
    let rights: Vec<String> = blocks
        .iter()
        .map(|block| block.replace(USER, &user))
        .collect();
    let run = |words: &[&str], code| run_with(cluster, &kubeconfig, words, code);
    let refused = run(&["cluster", "status"], 2)?;
    ensure!(
        refused.stderr.contains("forbidden") && refused.stderr.contains("guide"),
        "{refused:?}"
    );
    cluster
        .kubectl()
        .apply(&rights[0].replace("pods/exec", "pods/log"))?;
    // Not known is not "not ready".
    let unasked = run(&["cluster", "status"], 2)?.stdout;
    ensure!(
        unasked.starts_with("3 nodes: 0 ready; 3 unknown\n") && unasked.contains("\nn2    ?  "),
        "{unasked}"
    );
    ensure!(
        unasked
            .lines()
            .any(|line| line.starts_with("n2: cannot be asked: ") && line.contains("guide")),
        "{unasked}"
    );
    cluster.kubectl().apply(&rights[0])?;
    let text = run(&["cluster", "status", "--wait=60s"], 0)?.stdout;
    ensure!(
        text.starts_with("3 nodes: 3 ready; 3 in mode fast\n"),
        "{text}"
    );
    let [(source, _), (destination, _)] = servers(cluster)?;
    run(&["cluster", "explain", &source, &destination], 0)?;
    let archive = run(&["cluster", "bugtool", "--output=/run/rights.tar.gz"], 0)?.stdout;
    cluster.outside.run(["rm", "/run/rights.tar.gz"])?;
    ensure!(archive.contains("3 nodes"), "{archive}");
    let refused = run(&["connectivity", "test"], 2)?;
    ensure!(
        refused.stderr.contains("namespaces is forbidden"),
        "{refused:?}"
    );
    cluster.kubectl().apply(&rights[1])?;
    let text = run(&["connectivity", "test"], 0)?.stdout;
    ensure!(text.contains(" passed\n"), "{text}");
    rights
        .iter()
        .try_for_each(|rights| cluster.kubectl().delete_manifests(rights))?;
    cluster.kubectl().delete(["serviceaccount", account])
}
