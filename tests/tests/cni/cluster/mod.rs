//! Pods created by the plugin, the distribution's delegates and the manifest's list, on nodes with
//! agents: reachability in every mode and over both families, a hundred pods at once, a node that
//! reboots, and one whose subnet changed.

mod many;
mod moved;
mod reach;
mod reboot;
mod world;
