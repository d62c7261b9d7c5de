//! Pods by the plugin, the distribution's delegates and the manifest's list, on nodes with agents: whom they reach, in every
//! mode and by both families; a hundred at once; a node that boots anew.

mod many;
mod reach;
mod reboot;
mod world;
