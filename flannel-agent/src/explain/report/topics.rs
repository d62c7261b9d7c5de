//! The topics of steps, for the schema of the story.

crate::schema::topics! {
    /// The topic of a step.
    Topic in "explain/report" of "Step":
    "back" "destination" "device" "echo" "fdb" "firewall" "flow" "guard" "masquerade" "mode"
    "neighbour" "node" "path" "policy" "process" "program" "route" "service" "size" "source"
    "trace" "underlay" "wireguard"
}
