//! A node that cannot do what mode `fast` needs does the next lesser thing and says why.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{Pair, eventually, fast::FLAGS, kernel::nfqueue::Answers};

#[test]
fn packets_may_be_queued_only_while_polls_are_counted() -> Result<()> {
    let pair = Pair::with_flags("fa-lowered", &FLAGS[1..])?;
    let pin = pair
        .sender
        .node()
        .outside_path("/sys/fs/bpf/flannel/v2/programs/count_polls");
    let aside = pin.with_file_name("aside");
    fs::rename(&pin, &aside)?;
    pair.sender.set_mode("fast")?;
    pair.sender.wait_pod(&pair.near, true, true)?;
    let _answers = Answers::start(pair.sender.node(), 0)?;
    eventually(
        "mode encap in place of fast",
        Duration::from_secs(5),
        || {
            let mode = pair.sender.status()?["mode"].clone();
            let why = mode["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("count_polls"));
            ensure!(
                mode["effective"] == "encap" && mode["wanted"] == "fast" && why,
                "{mode}"
            );
            Ok(())
        },
    )?;
    pair.near.ping(pair.far.ip())?;
    fs::rename(&aside, &pin)?;
    pair.sender.set_mode("fast")?;
    pair.sender.wait_pod(&pair.near, true, true)
}
