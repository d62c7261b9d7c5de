//! Schemas of what the documents of commands have from other crates: names of a closed set, and
//! types of the status document. Only for tests.

use std::{borrow::Cow, collections::BTreeSet, fs, path::Path};

use flannel_common::{
    guard::GuardMode,
    mode::Mode,
    program::Program,
    reason::{Reason, Verdict},
};
use flannel_datapath::AttachKind;
use schemars::{JsonSchema, Schema, SchemaGenerator};

flannel_json_schema::names! {
    /// A program.
    ProgramName: Program::ALL.map(Program::name);
    /// The reason of a verdict.
    ReasonName: Reason::ALL.map(Reason::name);
    /// A verdict.
    VerdictName: [Verdict::Pass, Verdict::Redirect, Verdict::Drop].map(Verdict::name);
    /// A protocol with ports.
    TransportName: ["tcp", "udp"];
    /// The path to a peer, by its entry in the peer map.
    PathName: ["direct", "tunnel", "kernel"];
    /// The direction of a packet at an interface.
    DirectionName: ["in", "out"];
    /// The state of a flow: usable, or the reason why not.
    FlowStateName: ["usable"].into_iter().chain(Reason::ALL.map(Reason::name));
    /// An address family.
    FamilyName: ["IPv4", "IPv6"];
}

/// Describes topics: names that are written where a finding is made, below a folder, as the first
/// argument of the functions of a type. A test compares them with the sources.
macro_rules! topics {
    ($(#[$doc:meta])* $type:ident in $folder:literal of $made:literal: $($name:literal)+) => {
        $(#[$doc])*
        pub(in crate) struct $type;

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                flannel_json_schema::name([$($name),+])
            }
        }

        #[test]
        fn the_topics_are_those_of_the_sources() {
            crate::schema::compare_topics($folder, $made, &[$($name),+]);
        }
    };
}
pub(crate) use topics;

/// Compares a list of topics with the sources below a folder.
pub(crate) fn compare_topics(folder: &str, made: &str, listed: &[&str]) {
    let mut sources = String::new();
    let mut folders = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(folder),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("topics.rs") && !path.ends_with("tests.rs") {
                sources += &fs::read_to_string(&path).expect("a source");
            }
        }
    }
    let made = format!("{made}::");
    let arguments = sources
        .split(&made)
        .skip(1)
        .filter_map(|call| Some(call.split_once('(')?.1));
    let literals =
        arguments.filter_map(|first| first.trim_start().strip_prefix('"')?.split('"').next());
    let unlisted: BTreeSet<&str> = literals.filter(|name| !listed.contains(name)).collect();
    assert!(unlisted.is_empty(), "the list lacks {unlisted:?}");
    let stale: Vec<_> = listed
        .iter()
        .filter(|name| !sources.contains(&format!("\"{name}\"")))
        .collect();
    assert!(stale.is_empty(), "no source has {stale:?}");
}

/// Takes the schemas of types from that of the status.
macro_rules! status_types {
    ($($type:ident)+) => {$(
        pub(crate) struct $type;

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                flannel_json_schema::definition(generator, "status", stringify!($type))
            }
        }
    )+};
}

status_types! { GuardStatus ModeName ModeStatus ProblemCode Severity }

#[test]
fn the_names_in_the_schema_of_the_status_are_those_of_the_code() {
    let mut generator = SchemaGenerator::default();
    let mut compare = |name: &str, names: &[&'static str]| {
        let found = flannel_json_schema::definition(&mut generator, "status", name);
        assert_eq!(
            found,
            flannel_json_schema::name(names.iter().copied()),
            "{name}"
        );
    };
    compare(
        "ModeName",
        &[Mode::Kernel, Mode::Encap, Mode::Fast].map(Mode::name),
    );
    compare("GuardModeName", &GuardMode::ALL.map(GuardMode::name));
    compare(
        "AttachName",
        &[AttachKind::Tcx, AttachKind::Clsact].map(AttachKind::name),
    );
    compare("WayName", &flannel_backends::Way::NAMES);
}
