#![cfg_attr(not(test), no_std)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]
//! Shared by the agent and the BPF programs: the layout of every map, the numbers of programs and
//! verdict reasons, and the packet arithmetic, which is pure and therefore tested without a kernel.
//!
//! Invariants: data that crosses between the two sides has no padding, `bool`, `Option` or Rust
//! enum in it; sizes and offsets are pinned by assertions that both sides compile; program and
//! reason numbers are append-only. A change of an existing map's layout raises [`SCHEMA`], which is
//! part of the pin path, so an old and a new agent never read each other's maps. A new map does
//! not: the loader creates what is not pinned yet and adopts the rest, while packets flow. Nor does
//! a map that may be lost (flows, settings) and whose value has another size: the loader replaces
//! it.

pub mod abi;
pub mod flow;
pub mod packet;

/// Version of all map layouts together; the pins live in `<pin-root>/v<SCHEMA>/`.
pub const SCHEMA: u32 = 2;
