//! Schemas of what the documents of commands have from other crates: names of a closed set, and
//! types of the status document. Only for tests.

use std::borrow::Cow;

use flannel_common::abi::{
    program::Program,
    reason::{Reason, Verdict},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};

crate::names! {
    /// A program.
    pub ProgramName: Program::ALL.map(Program::name);
    /// The reason of a verdict.
    pub ReasonName: Reason::ALL.map(Reason::name);
    /// A verdict.
    pub VerdictName: [Verdict::Pass, Verdict::Redirect, Verdict::Drop].map(Verdict::name);
    /// A protocol with ports.
    pub TransportName: ["tcp", "udp"];
    /// The path to a peer, by its entry in the peer map.
    pub PathName: ["direct", "tunnel", "kernel"];
    /// The direction of a packet at an interface.
    pub DirectionName: ["in", "out"];
    /// The state of a flow: usable, or the reason why not.
    pub FlowStateName: ["usable"].into_iter().chain(Reason::ALL.map(Reason::name));
    /// An address family.
    pub FamilyName: ["IPv4", "IPv6"];
}

/// Takes the schemas of types from that of the status.
macro_rules! status_types {
    ($($type:ident)+) => {$(
        /// The type of this name in the status document.
        pub struct $type;

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                crate::definition(generator, "status", stringify!($type))
            }
        }
    )+};
}

status_types! { GuardStatus ModeName ModeStatus ProblemCode Severity }

#[cfg(test)]
mod tests {
    use flannel_common::abi::{guard::GuardMode, mode::Mode};
    use flannel_datapath::AttachKind;

    use super::*;

    #[test]
    fn the_names_in_the_schema_of_the_status_are_those_of_the_code() {
        let mut generator = SchemaGenerator::default();
        let mut compare = |name: &str, names: &[&'static str]| {
            let found = crate::definition(&mut generator, "status", name);
            assert_eq!(found, crate::name(names.iter().copied()), "{name}");
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
        compare("WayName", &flannel_backends::WAY_NAMES);
    }
}
