//! Reading the rules: nf_tables by netlink, tables of the legacy iptables by its tools.

use flannel_firewall_tools::{legacy, tool};
use flannel_host::family::Family;
use tokio::task::spawn_blocking;

use super::{
    hooks::Hooks,
    judge::PerPacket,
    model::Ruleset,
    nft::NftSockets,
    saved::{BRIDGE, SavedReader},
};

impl Ruleset {
    /// Returns the rules of this network namespace for a tunnel at this port, and the errors of
    /// what could not be read.
    pub async fn read(port: Option<u16>) -> (Self, Vec<String>) {
        let (mut rules, mut errors) = (Self::new(port), Vec::new());
        match read_nft(port, Hooks::All, None).await {
            Ok(NftReading::Read { rules: found, .. }) => rules = found,
            Ok(NftReading::Unchanged | NftReading::Missing) => {}
            Err(error) => errors.push(error),
        }
        errors.extend(read_legacy(&mut rules, Hooks::All).await);
        (rules, errors)
    }
}

/// The rules that matter to a running agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// The chains with rules that judge single packets; `None` if only those of forwarded packets
    /// were read.
    pub(super) per_packet: Option<Vec<PerPacket>>,
    /// As [`Ruleset::closed_forward`].
    pub(super) closed_forward: Vec<String>,
}

impl Rules {
    fn new(rules: &Ruleset, hooks: Hooks) -> Self {
        let per_packet = (hooks != Hooks::Forward).then(|| rules.per_packet());
        Self {
            per_packet,
            closed_forward: rules.closed_forward(),
        }
    }

    fn and(mut self, more: Self) -> Self {
        if let (Some(all), Some(more)) = (&mut self.per_packet, more.per_packet) {
            all.extend(more);
        }
        self.closed_forward.extend(more.closed_forward);
        self
    }
}

/// The rules, as they were when they were read last.
#[derive(Debug)]
pub(super) struct Reading {
    port: Option<u16>,
    /// The hooks and the generation of nf_tables in which they were read, and the rules.
    nft: Option<(Hooks, u32, Rules)>,
}

impl Reading {
    pub(super) const fn new(port: Option<u16>) -> Self {
        Self { port, nft: None }
    }

    /// Returns the rules of these hooks. Reads nf_tables only if its generation is another one. A
    /// change during the reading makes the next call read again.
    pub(super) async fn refresh(&mut self, hooks: Hooks) -> Result<Rules, String> {
        let known = self
            .nft
            .as_ref()
            .filter(|(read, ..)| *read == hooks)
            .map(|(_, generation, _)| *generation);
        match read_nft(self.port, hooks, known).await? {
            NftReading::Read { generation, rules } => {
                self.nft = Some((hooks, generation, Rules::new(&rules, hooks)));
            }
            NftReading::Missing => self.nft = None,
            NftReading::Unchanged => {}
        }
        let mut legacy = Ruleset::new(self.port);
        let errors = read_legacy(&mut legacy, hooks).await;
        if !errors.is_empty() {
            return Err(errors.join("; "));
        }
        let of_legacy = Rules::new(&legacy, hooks);
        Ok(match &self.nft {
            Some((_, _, of_nft)) => of_nft.clone().and(of_legacy),
            None => of_legacy,
        })
    }
}

enum NftReading {
    /// The generation is the known one.
    Unchanged,
    /// The kernel has no nf_tables.
    Missing,
    Read {
        generation: u32,
        rules: Ruleset,
    },
}

/// Reads on a thread that may wait for the kernel.
async fn read_nft(
    port: Option<u16>,
    hooks: Hooks,
    known: Option<u32>,
) -> Result<NftReading, String> {
    let read = move || {
        let Some(mut sockets) = NftSockets::open()? else {
            return Ok(NftReading::Missing);
        };
        let generation = sockets.generation()?;
        if known == Some(generation) {
            return Ok(NftReading::Unchanged);
        }
        let mut rules = Ruleset::new(port);
        sockets.read(&mut rules, hooks)?;
        Ok(NftReading::Read { generation, rules })
    };
    let read = spawn_blocking(read)
        .await
        .map_err(|_panic| "the reader of nf_tables panicked".to_owned())?;
    read.map_err(|error: flannel_netlink::NetlinkError| error.to_string())
}

/// Adds the rules of the legacy variant. Returns the errors.
async fn read_legacy(found: &mut Ruleset, hooks: Hooks) -> Vec<String> {
    let mut errors = Vec::new();
    for (family, name) in [(Family::V4, "ip"), (Family::V6, "ip6")] {
        let (tables, base) = (legacy::tables(family), legacy::base(family));
        if tables.is_empty() {
            continue;
        }
        let Some(tool) = legacy::saver(base) else {
            errors.push(format!(
                "the kernel has {} of legacy {base} ({}), and {base}-legacy-save is not installed \
                 to read them",
                if tables.len() == 1 {
                    "a table"
                } else {
                    "tables"
                },
                tables.join(", ")
            ));
            continue;
        };
        for table in tables.iter().filter(|table| hooks.have_table(table)) {
            let mut reader = SavedReader::new(name, found);
            let read = tool::each_line(&tool, &["-t", table], |line| reader.read(line)).await;
            errors.extend(read.err().map(|error| error.to_string()));
        }
    }
    if hooks != Hooks::Forward
        && let Some(tool) = legacy::saver("ebtables")
    {
        let mut reader = SavedReader::new(BRIDGE, found);
        let read = tool::each_line(&tool, &[], |line| reader.read(line)).await;
        errors.extend(read.err().map(|error| error.to_string()));
    }
    errors
}
