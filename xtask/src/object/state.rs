//! The abstract values of registers and of the stack at one instruction.
//!
//! At a join of two paths only the values both agree on are kept ([`State::join`]). Every step from
//! one state to the next therefore loses knowledge, and the analysis ends.

use std::ops::Range;

/// Bytes of the stack of a function.
const STACK: u16 = 512;
/// Bytes of the stack, as many as there are places.
const BYTES: usize = STACK as usize;
/// Words of the stack, in which registers are saved.
const WORDS: usize = BYTES / WORD;
const WORD: usize = 8;

/// The content of a register or of a word of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number that is not known, or an address that is not on the stack.
    Other,
    /// This number.
    Number(i64),
    /// The address of this map.
    Map(usize),
    /// An address on the stack of the function at this depth of calls, from its frame pointer on.
    Stack { depth: usize, offset: i64 },
    /// An address that may be on the stack, which differs from path to path.
    SomeStack,
}

impl Value {
    /// This value after something was added to it or, if `sign` is -1, taken from it.
    pub(super) fn plus(self, other: Self, sign: i64) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => {
                Self::Number(a.wrapping_add(b.wrapping_mul(sign)))
            }
            (Self::Stack { depth, offset }, Self::Number(number)) => Self::Stack {
                depth,
                offset: offset.wrapping_add(number.wrapping_mul(sign)),
            },
            (Self::Number(number), Self::Stack { depth, offset }) if sign == 1 => Self::Stack {
                depth,
                offset: offset.wrapping_add(number),
            },
            (a, b) if a.may_be_stack() && b.may_be_stack() => Self::Other,
            (a, b) if a.may_be_stack() || b.may_be_stack() => Self::SomeStack,
            _ => Self::Other,
        }
    }

    /// True for an address that is, or may be, on the stack.
    pub(super) const fn may_be_stack(self) -> bool {
        matches!(self, Self::Stack { .. } | Self::SomeStack)
    }

    fn join(&mut self, other: Self) {
        if *self != other {
            *self = if self.may_be_stack() || other.may_be_stack() {
                Self::SomeStack
            } else {
                Self::Other
            };
        }
    }
}

/// A use of the stack that verifiers refuse. Offsets count from the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misuse {
    /// An access at no multiple of its size.
    Misaligned { offset: i64, size: u8 },
    /// A read of bytes that were not written.
    Unwritten {
        offset: i64,
        size: u32,
        missing: Bytes,
    },
    /// An access outside of the stack.
    OutOfStack { offset: i64, size: u32 },
    /// An address that is not known.
    NotConstant,
}

/// The first and the last byte of a stretch of the stack of which bytes are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) first: i64,
    pub(super) last: i64,
}

/// Origin of the value of a byte of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No path writes it.
    Unwritten,
    /// Some paths write it.
    SomePaths,
    /// Every path writes it.
    Written,
}

/// The reader of memory, by what it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// An instruction. A byte that some path writes is accepted: the compiler reads it again only
    /// on that path, which the verifier sees by the values of branches, and this analysis does not.
    Instruction,
    /// A helper: every byte must be written on every path.
    Helper,
}

impl Reader {
    const fn accepts(self, origin: Origin) -> bool {
        matches!(
            (self, origin),
            (_, Origin::Written) | (Self::Instruction, Origin::SomePaths)
        )
    }
}

/// The stack of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    bytes: [Origin; BYTES],
    words: [Value; WORDS],
}

impl Frame {
    const EMPTY: Self = Self {
        bytes: [Origin::Unwritten; BYTES],
        words: [Value::Other; WORDS],
    };

    fn read(&self, offset: i64, size: u32, reader: Reader) -> Result<Value, Misuse> {
        let mut range = places(offset, size)?;
        let is_missing = |at: &u16| !reader.accepts(self.bytes[usize::from(*at)]);
        let word = word(&range);
        if let Some(first) = range.find(is_missing) {
            let last = range.rfind(is_missing).unwrap_or(first);
            let missing = Bytes {
                first: from_frame_pointer(first),
                last: from_frame_pointer(last),
            };
            return Err(Misuse::Unwritten {
                offset,
                size,
                missing,
            });
        }
        Ok(word.map_or(Value::Other, |word| self.words[word]))
    }

    fn write(&mut self, offset: i64, size: u32, value: Value) -> Result<(), Misuse> {
        let range = places(offset, size)?;
        let (start, end) = (usize::from(range.start), usize::from(range.end));
        self.bytes[start..end].fill(Origin::Written);
        self.words[start / WORD..end.div_ceil(WORD)].fill(Value::Other);
        if let Some(word) = word(&range) {
            self.words[word] = value;
        }
        Ok(())
    }

    /// The bytes from the frame pointer down to the lowest one that some path writes.
    fn used(&self) -> usize {
        let lowest = self
            .bytes
            .iter()
            .position(|origin| *origin != Origin::Unwritten);
        lowest.map_or(0, |lowest| BYTES - lowest)
    }

    fn join(&mut self, other: &Self) {
        for (byte, other) in self.bytes.iter_mut().zip(other.bytes) {
            if *byte != other {
                *byte = Origin::SomePaths;
            }
        }
        for (word, other) in self.words.iter_mut().zip(other.words) {
            word.join(other);
        }
    }
}

/// The places of these bytes, from the lowest byte of the stack on.
fn places(offset: i64, size: u32) -> Result<Range<u16>, Misuse> {
    let place = |offset: i64| {
        u16::try_from(offset.saturating_add(STACK.into()))
            .ok()
            .filter(|at| *at <= STACK)
    };
    let range = offset
        .checked_add(size.into())
        .and_then(|end| Some(place(offset)?..place(end)?));
    range.ok_or(Misuse::OutOfStack { offset, size })
}

fn from_frame_pointer(at: u16) -> i64 {
    i64::from(at) - i64::from(STACK)
}

/// The word that lies at these places, if they are those of one.
fn word(range: &Range<u16>) -> Option<usize> {
    let start = usize::from(range.start);
    (range.len() == WORD && start.is_multiple_of(WORD)).then_some(start / WORD)
}

/// Registers and stacks before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    registers: [Value; 11],
    frames: Vec<Frame>,
}

impl State {
    /// The state in which the kernel starts a program.
    pub(super) fn start() -> Self {
        let mut state = Self {
            registers: [Value::Other; 11],
            frames: Vec::new(),
        };
        state.enter();
        state
    }

    /// Gives the called function a new stack frame; arguments stay in their registers.
    pub(super) fn enter(&mut self) {
        self.registers[6..].fill(Value::Other);
        self.registers[10] = Value::Stack {
            depth: self.frames.len(),
            offset: 0,
        };
        self.frames.push(Frame::EMPTY);
    }

    /// This state, of a caller, after the function that it called returned with `callee`.
    pub(super) fn after_call(&mut self, mut callee: Self) {
        callee.frames.truncate(self.frames.len());
        self.frames = callee.frames;
        let result = match callee.registers[0] {
            Value::Stack { depth, .. } if depth >= self.frames.len() => Value::Other,
            result => result,
        };
        self.forget_arguments();
        self.registers[0] = result;
    }

    /// Number of functions that are being executed.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of stack of the function that is being executed.
    pub(super) fn used_by_last(&self) -> usize {
        self.frames.last().map_or(0, Frame::used)
    }

    pub(super) const fn register(&self, register: u8) -> Value {
        self.registers[register as usize]
    }

    pub(super) const fn set(&mut self, register: u8, value: Value) {
        self.registers[register as usize] = value;
    }

    /// The registers a call does not preserve.
    pub(super) fn forget_arguments(&mut self) {
        self.registers[..6].fill(Value::Other);
    }

    /// Reads `size` bytes at an address, which need not be on the stack.
    pub(super) fn read(&self, address: Value, size: u32, reader: Reader) -> Result<Value, Misuse> {
        match address {
            Value::Stack { depth, offset } => self
                .frames
                .get(depth)
                .ok_or(Misuse::NotConstant)?
                .read(offset, size, reader),
            Value::SomeStack => Err(Misuse::NotConstant),
            Value::Other | Value::Number(_) | Value::Map(_) => Ok(Value::Other),
        }
    }

    /// Writes `size` bytes at an address, which need not be on the stack.
    pub(super) fn write(&mut self, address: Value, size: u32, value: Value) -> Result<(), Misuse> {
        match address {
            Value::Stack { depth, offset } => self
                .frames
                .get_mut(depth)
                .ok_or(Misuse::NotConstant)?
                .write(offset, size, value),
            Value::SomeStack => Err(Misuse::NotConstant),
            Value::Other | Value::Number(_) | Value::Map(_) => Ok(()),
        }
    }

    /// Forgets what differs in the state of another path; whether that was anything.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            value.join(other);
        }
        for (frame, other) in self.frames.iter_mut().zip(&other.frames) {
            frame.join(other);
        }
        *self != before
    }
}

/// The check of an access by an instruction, which must be at a multiple of its size.
pub(super) fn check_alignment(address: Value, size: u8) -> Result<(), Misuse> {
    match address {
        Value::Stack { offset, .. } if offset % i64::from(size) != 0 => {
            Err(Misuse::Misaligned { offset, size })
        }
        _ => Ok(()),
    }
}
