//! Output whose reader closes the pipe before the end.

use anyhow::Result;
use flannel_tests::{TwoNodes, cluster::VXLAN};

/// Writes to a pipe whose reader is gone, by descriptor 1 or 2: the exit status, and what the other
/// one says.
fn into_closed_pipe(pair: &TwoNodes, words: &str, descriptor: u8) -> Result<String> {
    let binary = pair.options()?.binary.display().to_string();
    let script = format!("exec 3> >(:); wait $!; {binary} {words} {descriptor}>&3; echo status $?");
    let output = pair.a.run(["bash", "-c", &script])?;
    Ok(format!("{}{}", output.stdout, output.stderr))
}

#[test]
fn a_reader_that_goes_away_is_no_error() -> Result<()> {
    let pair = TwoNodes::new("pipe", VXLAN)?;
    let _agent = pair.a.ready_agent(pair.options()?)?;
    for words in [
        "status",
        "status -o json",
        "maps dump all",
        "datapath show",
        "cleanup --help",
        "--help",
        "run --version",
    ] {
        assert_eq!(into_closed_pipe(&pair, words, 1)?, "status 0\n", "{words}");
    }
    Ok(())
}

#[test]
fn an_error_without_a_reader_keeps_its_status() -> Result<()> {
    let pair = TwoNodes::unconfigured("stderr")?;
    for (words, status) in [
        ("run -nope", 64),
        ("datapath set quick", 64),
        ("maps dump all", 2),
    ] {
        assert_eq!(
            into_closed_pipe(&pair, words, 2)?,
            format!("status {status}\n"),
            "{words}"
        );
    }
    Ok(())
}
