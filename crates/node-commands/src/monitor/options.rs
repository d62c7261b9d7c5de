//! The options of `monitor`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use flannel_command::{PinOptions, StateOptions, prefix};
use flannel_common::abi::{
    monitor::{Filter, Network, ReasonSet, SNAPLEN_MAX},
    program::Program,
    reason::{Reason, Verdict},
};
use flannel_datapath::{PinRoot, monitor::MonitorSettings};
use flannel_options::OneOf;
use ipnet::IpNet;

/// The packets to show, the limits, and the output format.
#[derive(Debug, Args)]
pub struct MonitorOptions {
    /// Only packets at this program; may be repeated
    #[arg(
        long,
        value_name = "PROGRAM",
        value_parser = OneOf::new(Program::ALL.map(Program::name), parse_program),
        hide_possible_values = true,
    )]
    program: Vec<Program>,
    /// Only packets with this outcome, as in `maps dump stats`; may be repeated [default: all but
    /// `not_tunnel`]
    #[arg(
        long,
        value_name = "REASON",
        value_parser = OneOf::new(Reason::ALL.map(Reason::name), parse_reason),
        hide_possible_values = true,
    )]
    reason: Vec<Reason>,
    /// Only packets that are dropped
    #[arg(long, conflicts_with = "reason")]
    drops: bool,
    /// Only packets from these addresses; of a tunnel packet the inner one counts
    #[arg(long, value_name = "CIDR|IP", value_parser = prefix::parse)]
    src: Option<IpNet>,
    /// Only packets to these addresses
    #[arg(long, value_name = "CIDR|IP", value_parser = prefix::parse)]
    dst: Option<IpNet>,
    /// Only one packet in N, chosen at random
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    sample: u32,
    /// At most N packets a second
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    rate: u32,
    /// Bytes of each packet to keep, for -w and -o json
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(..=i64::from(SNAPLEN_MAX)),
    )]
    snaplen: u32,
    /// End after N packets
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Format in which packets are printed
    #[arg(
        short = 'o',
        long = "output",
        value_enum,
        default_value_t = PacketFormat::Text,
        conflicts_with = "write",
    )]
    output: PacketFormat,
    /// Write the packets to a capture file (pcapng) instead of printing them; - for standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// The format in which packets are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PacketFormat {
    /// A line each
    Text,
    /// One JSON object for each packet, on its own line
    Json,
}

impl MonitorOptions {
    /// Returns the request to the programs: the filter, the rate limit and the bytes of a packet to
    /// copy.
    pub fn wanted(&self) -> MonitorSettings {
        let filter = Filter {
            reasons: Reason::ALL
                .into_iter()
                .filter(|reason| self.wants(*reason))
                .fold(ReasonSet::default(), ReasonSet::with),
            programs: if self.program.is_empty() {
                u32::MAX
            } else {
                programs(&self.program)
            },
            sample: self.sample,
            source: network(self.src),
            destination: network(self.dst),
        };
        MonitorSettings {
            filter,
            rate: self.rate,
            snaplen: self.snaplen,
        }
    }

    fn wants(&self, reason: Reason) -> bool {
        if self.drops {
            reason.verdict() == Verdict::Drop
        } else if self.reason.is_empty() {
            // The host's own traffic, and with it whatever carries what we print.
            reason != Reason::NotTunnel
        } else {
            self.reason.contains(&reason)
        }
    }

    /// Bytes of a packet to show.
    pub(super) const fn snaplen(&self) -> usize {
        self.snaplen as usize
    }

    /// Returns the number of packets to show; `None` for no limit.
    pub(super) const fn count(&self) -> Option<u64> {
        self.count
    }

    /// Returns the time to run; `None` for no limit.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.duration.map(Duration::from_secs)
    }

    /// Returns the format in which packets are printed.
    pub(super) const fn format(&self) -> PacketFormat {
        self.output
    }

    /// The capture file.
    pub(super) const fn file(&self) -> Option<&PathBuf> {
        self.write.as_ref()
    }

    /// The state directory of the agent that knows names of pods.
    pub(super) fn state_dir(&self) -> &Path {
        &self.state.state_dir
    }

    /// The pins of the programs.
    pub(super) async fn pins(&self) -> PinRoot {
        self.pins.found(&self.state).await
    }
}

fn programs(programs: &[Program]) -> u32 {
    programs
        .iter()
        .fold(0, |mask, program| mask | 1 << *program as u32)
}

fn network(net: Option<IpNet>) -> Network {
    net.map_or_else(Network::default, |net| {
        Network::new(net.network(), net.prefix_len())
    })
}

fn parse_program(text: &str) -> Result<Program, String> {
    named(text, Program::ALL, Program::name, "program")
}

fn parse_reason(text: &str) -> Result<Reason, String> {
    named(text, Reason::ALL, Reason::name, "reason")
}

fn named<T: Copy>(
    text: &str,
    all: impl IntoIterator<Item = T>,
    name: impl Fn(T) -> &'static str,
    kind: &str,
) -> Result<T, String> {
    let all: Vec<T> = all.into_iter().collect();
    all.iter()
        .copied()
        .find(|one| name(*one) == text)
        .ok_or_else(|| {
            let names: Vec<_> = all.into_iter().map(name).collect();
            format!("no such {kind}; there are {}", names.join(", "))
        })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, net::IpAddr};

    use flannel_cli::{Command, Once, parse};

    use super::*;

    fn wanted(flags: &str) -> Result<Filter, String> {
        let args = ["flannel-agent", "monitor"]
            .into_iter()
            .chain(flags.split_whitespace())
            .map(OsString::from);
        match parse(args, []) {
            Ok(Command::Once(Once::Monitor(options))) => Ok(options.wanted().filter),
            Ok(other) => panic!("{other:?}"),
            Err(stop) => Err(stop.text),
        }
    }

    fn reasons(filter: &Filter) -> Vec<Reason> {
        Reason::ALL
            .into_iter()
            .filter(|reason| filter.wants(Program::ToTunnel, *reason))
            .collect()
    }

    #[test]
    fn reasons_are_those_named_those_that_drop_or_all_but_the_hosts_own_traffic() {
        let all = wanted("").expect("no flag is needed");
        assert_eq!(reasons(&all).len(), Reason::ALL.len() - 1);
        assert!(!reasons(&all).contains(&Reason::NotTunnel));
        let drops = reasons(&wanted("--drops").expect("a flag"));
        assert!(
            drops.contains(&Reason::StoreFailed)
                && drops.iter().all(|reason| reason.verdict() == Verdict::Drop)
        );
        let named = wanted("--reason not_tunnel --reason replayed").expect("two reasons");
        assert_eq!(reasons(&named), [Reason::NotTunnel, Reason::Replayed]);
        assert!(wanted("--reason replayed --drops").is_err());
    }

    #[test]
    fn programs_and_addresses_are_those_named() {
        let filter = wanted("--program from_pod --src 10.244.1.7 --dst fd00::5/64").expect("flags");
        assert!(
            filter.wants(Program::FromPod, Reason::Sampled)
                && !filter.wants(Program::ToPod, Reason::Sampled)
        );
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(filter.source, Network::new(address("10.244.1.7"), 32));
        assert_eq!(
            filter.destination,
            Network::new(address("fd00::"), 64),
            "host bits are cleared"
        );
    }

    #[test]
    fn mistakes_say_what_there_is() {
        assert!(
            wanted("--program from_nowhere")
                .expect_err("no such program")
                .contains("there are from_pod, to_tunnel")
        );
        assert!(
            wanted("--reason bad")
                .expect_err("no such reason")
                .contains("there are encapsulated, ")
        );
        assert!(
            wanted("--src 10.244.1.0/33")
                .expect_err("no network")
                .contains("neither an address nor a prefix")
        );
        for flags in [
            "--rate 0",
            "--rate 100001",
            "--sample 0",
            "--snaplen 4001",
            "-o json -w file",
        ] {
            assert!(wanted(flags).is_err(), "{flags}");
        }
    }
}
