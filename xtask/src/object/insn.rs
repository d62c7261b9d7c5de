//! The BPF instructions ([RFC 9669](https://www.rfc-editor.org/rfc/rfc9669)) that concern the
//! stack.

use std::fmt;

/// Bytes of an instruction.
pub(super) const SIZE: usize = 8;

/// One slot of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    pub(super) destination: u8,
    pub(super) source: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// The meaning of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// `dst = src`, in 64 bits or, zero-extended, in 32.
    Move { is_wide: bool, operand: Operand },
    /// `dst += src` in 64 bits.
    Add(Operand),
    /// `dst -= src` in 64 bits.
    Subtract(Operand),
    /// Any other arithmetic: `dst` becomes a number.
    Compute,
    /// `dst` becomes a number of 64 bits, or the address of a map, of two slots.
    LoadWide,
    /// `dst = *(src + offset)`.
    Load { size: u8 },
    /// `*(dst + offset) = src`.
    Store { size: u8, operand: Operand },
    /// `*(dst + offset)` is read and written; `fetches` into `src` or r0.
    Atomic { size: u8, fetches: bool },
    /// To the instruction `by` slots behind the next.
    Jump { by: i32 },
    /// The same, or on to the next.
    Branch { by: i16 },
    /// A helper.
    Helper(i32),
    /// A function of the object, or of the kernel.
    Call(Callee),
    /// Return.
    Exit,
    /// An encoding that is not known.
    Unknown,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// A register.
    Register(u8),
    /// A number, sign-extended.
    Immediate(i32),
}

/// The target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function of the object.
    Local,
    /// A function of the kernel, by BTF.
    Kernel,
}

impl Instruction {
    /// Decodes one slot of an object with this machine's byte order.
    pub(super) const fn decode(bytes: [u8; SIZE]) -> Self {
        let [code, registers, o0, o1, i0, i1, i2, i3] = bytes;
        let (low, high) = (registers & 0xf, registers >> 4);
        let (destination, source) = if cfg!(target_endian = "little") {
            (low, high)
        } else {
            (high, low)
        };
        Self {
            code,
            destination,
            source,
            offset: i16::from_ne_bytes([o0, o1]),
            immediate: i32::from_ne_bytes([i0, i1, i2, i3]),
        }
    }

    /// The bytes of this instruction.
    #[cfg(test)]
    pub(super) const fn encode(&self) -> [u8; SIZE] {
        let (low, high) = if cfg!(target_endian = "little") {
            (self.destination, self.source)
        } else {
            (self.source, self.destination)
        };
        let ([o0, o1], [i0, i1, i2, i3]) =
            (self.offset.to_ne_bytes(), self.immediate.to_ne_bytes());
        [self.code, low | high << 4, o0, o1, i0, i1, i2, i3]
    }

    /// The meaning of this instruction.
    pub(super) const fn operation(&self) -> Operation {
        match self.code & 0x07 {
            0x00 if self.code == 0x18 => Operation::LoadWide,
            0x01 => self.load(),
            0x02 | 0x03 => self.store(),
            0x04 | 0x07 => self.arithmetic(),
            0x05 | 0x06 => self.jump(),
            _ => Operation::Unknown,
        }
    }

    const fn load(&self) -> Operation {
        match self.code & 0xe0 {
            0x60 | 0x80 => Operation::Load { size: self.size() },
            _ => Operation::Unknown,
        }
    }

    const fn store(&self) -> Operation {
        const FETCH: i32 = 1;
        let operand = if self.code & 0x07 == 0x02 {
            Operand::Immediate(self.immediate)
        } else {
            Operand::Register(self.source)
        };
        match self.code & 0xe0 {
            0x60 => Operation::Store {
                size: self.size(),
                operand,
            },
            0xc0 => Operation::Atomic {
                size: self.size(),
                fetches: self.immediate & FETCH != 0,
            },
            _ => Operation::Unknown,
        }
    }

    const fn arithmetic(&self) -> Operation {
        let is_wide = self.code & 0x07 == 0x07;
        match self.code & 0xf0 {
            // With an offset it is a move with sign extension.
            0xb0 if self.offset == 0 => Operation::Move {
                is_wide,
                operand: self.operand(),
            },
            0x00 if is_wide => Operation::Add(self.operand()),
            0x10 if is_wide => Operation::Subtract(self.operand()),
            0xe0 | 0xf0 => Operation::Unknown,
            _ => Operation::Compute,
        }
    }

    const fn jump(&self) -> Operation {
        match (self.code, self.source) {
            (0x05, _) => Operation::Jump {
                by: self.offset as i32,
            },
            (0x06, _) => Operation::Jump { by: self.immediate },
            (0x85, 0) => Operation::Helper(self.immediate),
            (0x85, 1) => Operation::Call(Callee::Local),
            (0x85, 2) => Operation::Call(Callee::Kernel),
            (0x95, _) => Operation::Exit,
            _ if matches!(self.code & 0xf0, 0x80 | 0x90 | 0xe0 | 0xf0) => Operation::Unknown,
            _ => Operation::Branch { by: self.offset },
        }
    }

    const fn operand(&self) -> Operand {
        if self.code & 0x08 == 0 {
            Operand::Immediate(self.immediate)
        } else {
            Operand::Register(self.source)
        }
    }

    const fn size(&self) -> u8 {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            destination,
            source,
            offset,
            ..
        } = self;
        match self.operation() {
            Operation::Load { size } => {
                write!(
                    f,
                    "r{destination} = *(u{} *)(r{source} {offset:+})",
                    size * 8
                )
            }
            Operation::Store { size, operand } => {
                write!(
                    f,
                    "*(u{} *)(r{destination} {offset:+}) = {operand}",
                    size * 8
                )
            }
            Operation::Atomic { size, .. } => {
                write!(f, "atomic *(u{} *)(r{destination} {offset:+})", size * 8)
            }
            Operation::Helper(number) => write!(f, "call {number}"),
            Operation::Call(_) => f.write_str("call of a function"),
            _ => write!(f, "{:02x}", self.code),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(register) => write!(f, "r{register}"),
            Self::Immediate(number) => number.fmt(f),
        }
    }
}
