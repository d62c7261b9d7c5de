//! `flannel-agent bugtool`: everything a bug report needs, in one archive without secrets.
//!
//! Each piece is a file; `errors.txt` lists the pieces that could not be collected, with the
//! reason. Time and size are bounded. The command does not read the environment, kubeconfigs, keys
//! or the leases of other nodes in the store; everything it writes goes through
//! [`flannel_bugtool::redacted`].

mod collect;
mod options;
mod writer;

use anyhow::Context as _;
use flannel_bugtool::{Archive, Destination};
use nix::sys::utsname::uname;

pub(super) use self::options::BugtoolOptions;
use self::{collect::OwnCommand, writer::Writer};

/// Runs the command, and by `own` further commands of the agent; the text to print.
pub(super) async fn run(options: &BugtoolOptions, own: OwnCommand) -> anyhow::Result<String> {
    let host = uname().map_or_else(
        |_| "node".to_owned(),
        |name| name.nodename().to_string_lossy().into_owned(),
    );
    let mut destination = Destination::new(
        &format!("flannel-bugtool-{host}"),
        options.output.as_deref(),
    );
    let archive = Archive::create(&mut destination);
    let failed = || format!("cannot write to {destination}; choose another place with -o");
    let mut writer = Writer {
        archive: archive.with_context(failed)?,
        files: 0,
        errors: Vec::new(),
    };
    collect::collect(options, own, &mut writer)
        .await
        .with_context(failed)?;
    let (files, errors) = writer.finish().with_context(failed)?;
    if destination.is_stdout() {
        // The reader has the archive, and errors.txt in it.
        return Ok(String::new());
    }
    let missing = if errors == 0 {
        String::new()
    } else {
        format!("; {errors} more are not to be had here, errors.txt says why")
    };
    Ok(format!("wrote {destination} with {files} files{missing}\n"))
}
