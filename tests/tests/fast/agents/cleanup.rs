//! Mode `fast` leaves as it came.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Pair, eventually,
    fast::fast_pair,
    kernel::hooks::{self, Side},
    kernel::nfqueue::Answers,
};

/// Returns the names of all programs on the pod's veth, regardless of owner and attach type.
fn on_veth(pair: &Pair) -> Result<Vec<String>> {
    let (node, veth) = (pair.sender.node(), pair.near.veth());
    let mut names = Vec::new();
    for side in [Side::Ingress, Side::Egress] {
        names.extend(hooks::programs(node, veth, side)?);
    }
    Ok(names)
}

/// Another mode takes the programs off the pods at once; back in mode `fast` they are there again.
fn comes_and_goes(name: &str, flags: &[&str]) -> Result<()> {
    let pair = fast_pair(name, flags)?;
    assert_eq!(on_veth(&pair)?, ["from_pod", "to_pod"]);
    let links = pair
        .sender
        .node()
        .outside_path("/sys/fs/bpf/flannel/v2/links");
    let expect = |mode: &str, polls: bool| {
        eventually(
            &format!("programs of mode {mode}"),
            Duration::from_secs(5),
            || {
                let expected = if mode == "fast" {
                    &["from_pod", "to_pod"][..]
                } else {
                    &[]
                };
                let (names, counts_polls) = (on_veth(&pair)?, links.join("count_polls").exists());
                ensure!(
                    names == expected && counts_polls == polls,
                    "{names:?}, polls: {counts_polls}"
                );
                Ok(())
            },
        )
    };
    expect("fast", false)?;
    let generation = pair.sender.generation()?;
    let answers = Answers::start(pair.sender.node(), 0)?;
    expect("fast", true)?;
    ensure!(
        pair.sender.generation()? > generation,
        "what was learned before stays in use"
    );
    drop(answers);
    for (mode, polls) in [("encap", false), ("fast", false)] {
        pair.sender.set_mode(mode)?;
        expect(mode, polls)?;
    }
    pair.sender.wait_pod(&pair.near, true, true)?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    pair.sender.sigterm_and_wait()?;
    assert_eq!(
        on_veth(&pair)?,
        ["from_pod", "to_pod"],
        "a graceful exit leaves the datapath running"
    );
    pair.sender.cli(&["cleanup"])?;
    assert_eq!(on_veth(&pair)?, [""; 0]);
    ensure!(
        !pair
            .sender
            .node()
            .outside_path("/sys/fs/bpf/flannel/v2")
            .exists()
    );
    Ok(())
}

/// The agent was killed in mode `fast`, and its successor begins in another one.
fn nothing_stays_of_a_former_life(name: &str, flags: &[&str]) -> Result<()> {
    let pair = fast_pair(name, flags)?;
    pair.sender.kill9()?;
    pair.sender.cli(&["datapath", "set", "encap"])?;
    assert_eq!(
        on_veth(&pair)?,
        ["from_pod", "to_pod"],
        "the datapath of a dead agent stays"
    );
    pair.sender.restart()?;
    pair.sender.wait_ready()?;
    eventually("programs off the pod", Duration::from_secs(5), || {
        let names = on_veth(&pair)?;
        ensure!(names.is_empty(), "{names:?}");
        Ok(())
    })?;
    pair.near.ping(pair.far.ip())?;
    Ok(())
}

#[test]
fn links_of_a_killed_agent() -> Result<()> {
    if hooks::lacks_tcx("TCX links of a killed agent") {
        return Ok(());
    }
    nothing_stays_of_a_former_life("fa-links", &["--attach=tcx"])
}

#[test]
fn filters_of_a_killed_agent() -> Result<()> {
    nothing_stays_of_a_former_life("fa-filters", &["--attach=clsact"])
}

#[test]
fn by_tcx() -> Result<()> {
    if hooks::lacks_tcx("attachment by TCX") {
        return Ok(());
    }
    comes_and_goes("fa-tcx", &["--attach=tcx"])
}

#[test]
fn by_clsact() -> Result<()> {
    comes_and_goes("fa-clsact", &["--attach=clsact"])
}
