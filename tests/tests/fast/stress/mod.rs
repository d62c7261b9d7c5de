//! A life in mode `fast`: whatever happens to agents, flows, pods and the underlay while packets
//! flow, no connection breaks, and no datagram is lost that mode `kernel` would not lose.

mod chaos;
mod loads;
mod pods;
mod switches;
mod table;
mod underlay;
