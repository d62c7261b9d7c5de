//! The output of `monitor`: lines of text or JSON, or a capture file.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write},
    net::IpAddr,
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use flannel_flows::monitor::{Names, Seen, json, pcapng, text};

use super::options::{MonitorOptions, PacketFormat};

type Output = BufWriter<Box<dyn Write>>;

/// Lines, or a capture file.
pub(super) struct Sink {
    to: To,
    names: Names,
}

enum To {
    Text(Output),
    Json(Output),
    Capture(pcapng::Writer<Output>),
}

impl Sink {
    /// Opens what was asked for.
    pub(super) fn open(options: &MonitorOptions) -> anyhow::Result<Self> {
        let to = match (options.file(), options.format()) {
            (Some(path), _) => {
                To::Capture(capture(path, options).with_context(|| path.display().to_string())?)
            }
            (None, PacketFormat::Text) => To::Text(standard_output()),
            (None, PacketFormat::Json) => To::Json(standard_output()),
        };
        Ok(Self {
            to,
            names: Names::default(),
        })
    }

    /// Sets the names of pods, by address.
    pub(super) fn name_pods(&mut self, pods: BTreeMap<IpAddr, String>) {
        self.names.pods = pods;
    }

    /// Sets the names of Services, by address.
    pub(super) fn name_services(&mut self, services: BTreeMap<IpAddr, String>) {
        self.names.services = services;
    }

    /// Writes one packet.
    pub(super) fn write(&mut self, seen: &Seen<'_>, epoch: Duration) -> io::Result<()> {
        let names = &mut self.names;
        match &mut self.to {
            To::Text(output) => output.write_all(text::line(seen, epoch, names).as_bytes()),
            To::Json(output) => output.write_all(json::line(seen, epoch, names).as_bytes()),
            To::Capture(writer) => writer.packet(seen, epoch, &mut names.devices),
        }
    }

    /// Flushes what was written: a user may be watching.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Text(output) | To::Json(output) => output.flush(),
            To::Capture(writer) => writer.flush(),
        }
    }
}

fn capture(path: &Path, options: &MonitorOptions) -> io::Result<pcapng::Writer<Output>> {
    let to: Output = if path == Path::new("-") {
        standard_output()
    } else {
        BufWriter::new(Box::new(File::create(path)?))
    };
    let mut writer = pcapng::Writer::new(to, options.wanted().snaplen)?;
    // Who reads a pipe waits for it.
    writer.flush()?;
    Ok(writer)
}

fn standard_output() -> Output {
    BufWriter::new(Box::new(io::stdout()))
}
