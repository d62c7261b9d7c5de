//! Flags and variables that cannot be used.

use anyhow::Result;
use flannel_tests::{AgentOptions, Lab};

fn refused(flags: &[&str], environment: &[(&str, &str)]) -> Result<String> {
    let lab = Lab::new("usage")?;
    let node = lab.node("n")?;
    let mut options = AgentOptions::etcd("http://127.0.0.1:1")?.flags(flags);
    options.environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let (code, text) = node.agent(options)?.wait_end()?;
    assert_eq!(code, 64, "{text}");
    Ok(text)
}

/// Wrong usage ends with status 64, so that a service manager can distinguish it from a failed
/// node.
#[test]
fn every_mistake_on_the_command_line_is_reported_at_once() -> Result<()> {
    let text = refused(
        &[
            "--nonsense",
            "--iface-regex=eth(",
            "--datapath=quick",
            "--subnet-lease-renew-margin=1440",
            "--public-ip=fd00::1",
            "bare",
        ],
        &[("FLANNELD_V", "loud"), ("FLANNELD_VMODULE", "main=9")],
    )?;
    for mistake in [
        "unknown flag --nonsense",
        "--iface-regex=eth( is no regular expression: unclosed group",
        "--datapath is \"quick\", expected kernel, encap, fast or auto",
        "--subnet-lease-renew-margin is \"1440\", expected 1 to 1439 minutes",
        "--public-ip is \"fd00::1\", expected an IPv4 address",
        "unexpected argument \"bare\"",
        "FLANNELD_V is \"loud\", expected a whole number",
        "FLANNELD_VMODULE=main=9 is not built yet; leave it out",
    ] {
        assert!(text.contains(mistake), "{mistake} in:\n{text}");
    }
    Ok(())
}

#[test]
fn what_is_not_built_is_refused_by_name() -> Result<()> {
    let text = refused(&["--vmodule=main=9"], &[])?;
    assert!(
        text.contains("--vmodule=main=9 is not built yet; leave it out"),
        "{text}"
    );
    Ok(())
}
