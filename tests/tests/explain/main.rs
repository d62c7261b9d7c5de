//! `explain`: what it says agrees with what becomes of a packet.

mod story;
