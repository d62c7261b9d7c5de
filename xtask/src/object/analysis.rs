//! All paths through the programs of an object, with abstract values.
//!
//! Functions are followed where they are called, with their caller's stacks, as the verifier does.
//! The compiler's `memset`, `memcpy` and `memmove` are taken for what they do, since their loops
//! are beyond values that are constant.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Finding, Problem,
    elf::{Function, Object},
    helpers::{self, Access, Helper, Length, Memory},
    insn::{Callee, Instruction, Operand, Operation},
    stack_depth,
    state::{Misuse, Reader, State, Value, check_alignment},
};

/// Functions that may be executed at once (`MAX_CALL_FRAMES`).
const DEPTH: usize = 8;

/// Follows every program; each instruction is found once.
pub(super) fn analyse(object: &Object) -> Vec<Finding> {
    let used = vec![0; object.functions.len()];
    let mut analysis = Analysis {
        object,
        findings: BTreeMap::new(),
        used,
    };
    let programs = object
        .functions
        .iter()
        .enumerate()
        .filter(|(_, function)| function.is_program());
    for (program, _) in programs {
        analysis.run(program, State::start(), Report::Findings);
        for chain in stack_depth::too_deep(object, &analysis.used, program) {
            analysis
                .findings
                .entry(chain.call)
                .or_insert(Problem::TooMuchStack(chain));
        }
    }
    analysis
        .findings
        .into_iter()
        .map(|((function, at), problem)| finding(object, function, at, problem))
        .collect()
}

fn finding(object: &Object, function: usize, at: usize, problem: Problem) -> Finding {
    let Function {
        name,
        section,
        start,
        code,
        ..
    } = &object.functions[function];
    let instruction = code.get(at).map(ToString::to_string).unwrap_or_default();
    Finding {
        function: name.clone(),
        section: section.clone(),
        index: start + at,
        instruction,
        problem,
    }
}

struct Analysis<'a> {
    object: &'a Object,
    /// The first problem of each instruction, by function and number.
    findings: BTreeMap<(usize, usize), Problem>,
    /// The bytes of its stack that each function, or one that it calls, writes.
    used: Vec<usize>,
}

/// Recording of problems: on once the states are final. Before that, a path that writes may not
/// have been followed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Nothing,
    Findings,
}

impl Analysis<'_> {
    /// Follows a function from its entry; returns the state in which it returns, if it does.
    fn run(&mut self, function: usize, entry: State, report: Report) -> Option<State> {
        let states = self.fixpoint(function, entry);
        let mut result: Option<State> = None;
        for (at, mut state) in states {
            let problem = match self.object.functions[function].code.get(at) {
                Some(_) => self.execute(function, at, &mut state, report).err(),
                None => Some(Problem::Undecoded),
            };
            self.used[function] = self.used[function].max(state.used_by_last());
            if let Some(problem) = problem.filter(|_| report == Report::Findings) {
                self.findings.entry((function, at)).or_insert(problem);
            }
            if self.operation(function, at) == Some(Operation::Exit) {
                match &mut result {
                    Some(result) => {
                        result.join(&state);
                    }
                    None => result = Some(state),
                }
            }
        }
        result
    }

    /// The state before each instruction that is reached, by its number.
    fn fixpoint(&mut self, function: usize, entry: State) -> BTreeMap<usize, State> {
        let mut states = BTreeMap::from([(0, entry)]);
        let mut waiting = BTreeSet::from([0]);
        while let Some(at) = waiting.pop_first() {
            let Some(operation) = self.operation(function, at) else {
                continue;
            };
            let mut state = states[&at].clone();
            // Problems are noted when the states are final.
            drop(self.execute(function, at, &mut state, Report::Nothing));
            for target in successors(at, operation) {
                let is_changed = match states.get_mut(&target) {
                    Some(known) => known.join(&state),
                    None => states.insert(target, state.clone()).is_none(),
                };
                if is_changed {
                    waiting.insert(target);
                }
            }
        }
        states
    }

    fn operation(&self, function: usize, at: usize) -> Option<Operation> {
        self.object.functions[function]
            .code
            .get(at)
            .map(Instruction::operation)
    }

    /// Executes one instruction.
    fn execute(
        &mut self,
        function: usize,
        at: usize,
        state: &mut State,
        report: Report,
    ) -> Result<(), Problem> {
        let code = &self.object.functions[function];
        let instruction = &code.code[at];
        let (to, from) = (instruction.destination, instruction.source);
        match instruction.operation() {
            Operation::Move { is_wide, operand } => state.set(to, moved(state, is_wide, operand)),
            Operation::Add(operand) => {
                state.set(to, state.register(to).plus(value(state, operand), 1));
            }
            Operation::Subtract(operand) => {
                state.set(to, state.register(to).plus(value(state, operand), -1));
            }
            Operation::Compute => state.set(to, Value::Other),
            Operation::LoadWide => state.set(
                to,
                code.maps
                    .get(&at)
                    .map_or(Value::Other, |map| Value::Map(*map)),
            ),
            Operation::Load { size } => {
                let loaded = load(state, at_offset(state.register(from), instruction), size);
                state.set(to, loaded.unwrap_or(Value::Other));
                loaded.map_err(Problem::Access)?;
            }
            Operation::Store { size, operand } => {
                let (address, stored) = (
                    at_offset(state.register(to), instruction),
                    value(state, operand),
                );
                store(state, address, size, stored).map_err(Problem::Access)?;
            }
            Operation::Atomic { size, fetches } => {
                let address = at_offset(state.register(to), instruction);
                let loaded = load(state, address, size);
                if fetches {
                    state.set(from, Value::Other);
                    state.set(0, Value::Other);
                }
                store(state, address, size, Value::Other)
                    .and(loaded)
                    .map_err(Problem::Access)?;
            }
            Operation::Helper(number) => {
                let result = self.call_helper(number, state);
                state.forget_arguments();
                result?;
            }
            Operation::Call(Callee::Local) => self.call(code.calls[&at], state, report)?,
            Operation::Call(Callee::Kernel) | Operation::Unknown => return Err(Problem::Undecoded),
            Operation::Jump { .. } | Operation::Branch { .. } | Operation::Exit => {}
        }
        Ok(())
    }

    /// Checks the memory a helper reads, and writes what it writes.
    fn call_helper(&self, number: i32, state: &mut State) -> Result<(), Problem> {
        self.touch(
            helpers::find(number).ok_or(Problem::UnknownHelper(number))?,
            state,
        )
    }

    fn touch(&self, helper: &Helper, state: &mut State) -> Result<(), Problem> {
        for memory in helper.memory {
            let address = state.register(memory.register);
            if !address.may_be_stack() {
                continue;
            }
            let len = self.length(helper, memory, state)?;
            access(state, address, len, memory.access).map_err(|misuse| Problem::Argument {
                helper: helper.name,
                register: memory.register,
                misuse,
            })?;
        }
        Ok(())
    }

    fn length(&self, helper: &Helper, memory: &Memory, state: &State) -> Result<u32, Problem> {
        let map = || match state.register(1) {
            Value::Map(map) => Ok(self.object.maps[map]),
            _ => Err(Problem::UnknownMap {
                helper: helper.name,
            }),
        };
        match memory.length {
            Length::Fixed(len) => Ok(len),
            Length::Key => Ok(map()?.key),
            Length::Value => Ok(map()?.value),
            Length::Register(register) => match state.register(register) {
                Value::Number(len) => u32::try_from(len).ok(),
                _ => None,
            }
            .ok_or(Problem::Length {
                helper: helper.name,
                register,
            }),
        }
    }

    /// Follows a function of the object, with the stacks of its callers.
    fn call(&mut self, callee: usize, state: &mut State, report: Report) -> Result<(), Problem> {
        if let Some(memory) = builtin(&self.object.functions[callee].name) {
            let result = self.touch(&memory, state);
            state.forget_arguments();
            return result;
        }
        if state.depth() == DEPTH {
            state.forget_arguments();
            return Err(Problem::TooDeep);
        }
        let mut entry = state.clone();
        entry.enter();
        match self.run(callee, entry, report) {
            Some(returned) => state.after_call(returned),
            None => state.forget_arguments(),
        }
        Ok(())
    }
}

/// Arguments of the compiler's functions on memory; their length is in r3.
fn builtin(name: &str) -> Option<Helper> {
    const FROM: Memory = Memory {
        register: 2,
        length: Length::Register(3),
        access: Access::Reads,
    };
    const TO: Memory = Memory {
        register: 1,
        length: Length::Register(3),
        access: Access::Writes,
    };
    match name {
        "memset" => Some(Helper {
            number: 0,
            name: "memset",
            memory: &[TO],
        }),
        "memcpy" => Some(Helper {
            number: 0,
            name: "memcpy",
            memory: &[FROM, TO],
        }),
        "memmove" => Some(Helper {
            number: 0,
            name: "memmove",
            memory: &[FROM, TO],
        }),
        _ => None,
    }
}

fn access(state: &mut State, address: Value, len: u32, access: Access) -> Result<(), Misuse> {
    match access {
        Access::Reads => state.read(address, len, Reader::Helper).map(drop),
        Access::Writes => state.write(address, len, Value::Other),
    }
}

fn load(state: &State, address: Value, size: u8) -> Result<Value, Misuse> {
    check_alignment(address, size)?;
    state.read(address, size.into(), Reader::Instruction)
}

/// Stores a value, also where it is misaligned, so that only this instruction is found.
fn store(state: &mut State, address: Value, size: u8, value: Value) -> Result<(), Misuse> {
    state.write(address, size.into(), value)?;
    check_alignment(address, size)
}

/// The numbers of the instructions that may follow; one outside of the function is found there.
fn successors(at: usize, operation: Operation) -> Vec<usize> {
    let after = |by: i32| (at + 1).saturating_add_signed(by as isize);
    match operation {
        Operation::Exit | Operation::Unknown => Vec::new(),
        Operation::LoadWide => vec![after(1)],
        Operation::Jump { by } => vec![after(by)],
        Operation::Branch { by } => vec![after(0), after(by.into())],
        _ => vec![after(0)],
    }
}

/// The address of a load or store.
fn at_offset(base: Value, instruction: &Instruction) -> Value {
    base.plus(Value::Number(instruction.offset.into()), 1)
}

fn value(state: &State, operand: Operand) -> Value {
    match operand {
        Operand::Register(register) => state.register(register),
        Operand::Immediate(number) => Value::Number(number.into()),
    }
}

fn moved(state: &State, is_wide: bool, operand: Operand) -> Value {
    match value(state, operand) {
        value if is_wide => value,
        Value::Number(number) => Value::Number(number & i64::from(u32::MAX)),
        _ => Value::Other,
    }
}
