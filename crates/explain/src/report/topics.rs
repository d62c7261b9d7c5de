//! The topics of steps, for the schema of the story.

flannel_json_schema::topics! {
    /// The topic of a step.
    Topic in "report" of "Step":
    "back" "destination" "device" "echo" "fdb" "firewall" "flow" "guard" "masquerade" "mode"
    "neighbour" "node" "path" "policy" "process" "program" "route" "service" "size" "source"
    "trace" "underlay" "wireguard", of flannel_backends::CARRIER_PARTS
}
