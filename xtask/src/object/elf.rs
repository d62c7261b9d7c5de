//! Functions and maps of a BPF object.

use std::collections::HashMap;

use anyhow::{Context as _, bail, ensure};
use object::{
    File, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex,
    Symbol, SymbolKind,
};

use super::insn::{self, Callee, Instruction, Operation};

/// The section of compiler-made and of ordinary functions: what is not a program by itself.
const FUNCTIONS: &str = ".text";
/// The section of `bpf_map_def`, which aya's `#[map]` fills.
const MAPS: &str = "maps";
/// Bytes of an instruction, as calls count.
const SIZE: i64 = 8;
/// Bytes of a `bpf_map_def` up to the end of its value size.
const MAP_SIZES: usize = 12;

/// A BPF object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) functions: Vec<Function>,
    pub(super) maps: Vec<Map>,
}

/// A program or a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) section: String,
    /// Number of its first instruction in the section.
    pub(super) start: usize,
    pub(super) code: Vec<Instruction>,
    /// The functions called, by the number of the call in `code`.
    pub(super) calls: HashMap<usize, usize>,
    /// The maps loaded, by the number of the load in `code`.
    pub(super) maps: HashMap<usize, usize>,
}

impl Function {
    /// True if the kernel starts it.
    pub(super) fn is_program(&self) -> bool {
        self.section != FUNCTIONS
    }
}

/// Sizes of a map, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) key: u32,
    pub(super) value: u32,
}

/// A place in the object.
type Place = (SectionIndex, u64);
/// Functions with their sections.
type Functions = Vec<(Function, SectionIndex)>;

impl Object {
    /// Reads functions, maps, and which instruction refers to which.
    pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let file = File::parse(bytes).context("the BPF object is no ELF file")?;
        let (maps, map_at) = maps(&file)?;
        let (mut functions, function_at) = functions(&file)?;
        ensure!(
            functions.iter().any(|(function, _)| function.is_program()),
            "the BPF object has no program"
        );
        for (function, section) in &mut functions {
            let references = references(&file, *section)?;
            function.resolve(*section, &references, &function_at, &map_at)?;
        }
        Ok(Self {
            functions: functions
                .into_iter()
                .map(|(function, _)| function)
                .collect(),
            maps,
        })
    }
}

impl Function {
    /// Finds what each call and each load of an address refers to.
    fn resolve(
        &mut self,
        section: SectionIndex,
        references: &HashMap<u64, Place>,
        functions: &HashMap<Place, usize>,
        maps: &HashMap<Place, usize>,
    ) -> anyhow::Result<()> {
        for (at, instruction) in self.code.iter().enumerate() {
            let offset = address(self.start + at);
            match instruction.operation() {
                Operation::LoadWide => {
                    let map = references.get(&offset).and_then(|place| maps.get(place));
                    self.maps.extend(map.map(|map| (at, *map)));
                }
                Operation::Call(Callee::Local) => {
                    let (section, base) = references
                        .get(&offset)
                        .copied()
                        .unwrap_or((section, offset));
                    let target = i64::from(instruction.immediate) + 1;
                    let callee = functions.get(&(section, base.wrapping_add_signed(target * SIZE)));
                    let callee = callee.with_context(|| {
                        format!("{} calls no function at {offset:#x}", self.name)
                    })?;
                    self.calls.insert(at, *callee);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn functions(file: &File<'_>) -> anyhow::Result<(Functions, HashMap<Place, usize>)> {
    let (mut functions, mut places) = (Vec::new(), HashMap::new());
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0)
    {
        let name = symbol.name()?;
        let index = symbol
            .section_index()
            .with_context(|| format!("{name} is in no section"))?;
        let section = file.section_by_index(index)?;
        let bytes = section.data_range(symbol.address(), symbol.size())?;
        let code = bytes
            .with_context(|| format!("{name} is not all in its section"))?
            .as_chunks()
            .0;
        places.insert((index, symbol.address()), functions.len());
        let function = Function {
            name: name.to_owned(),
            section: section.name()?.to_owned(),
            start: usize::try_from(symbol.address())? / insn::SIZE,
            code: code
                .iter()
                .map(|bytes| Instruction::decode(*bytes))
                .collect(),
            ..Function::default()
        };
        functions.push((function, index));
    }
    Ok((functions, places))
}

fn maps(file: &File<'_>) -> anyhow::Result<(Vec<Map>, HashMap<Place, usize>)> {
    let (mut maps, mut places) = (Vec::new(), HashMap::new());
    let Some(section) = file.section_by_name(MAPS) else {
        return Ok((maps, places));
    };
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.section_index() == Some(section.index()))
    {
        if symbol.kind() != SymbolKind::Data {
            continue;
        }
        let definition = section.data_range(symbol.address(), symbol.size())?;
        let Some([_, key, value]) = definition.and_then(|bytes| words(bytes.get(..MAP_SIZES)?))
        else {
            bail!("the map {} has no definition", symbol.name()?);
        };
        places.insert((section.index(), symbol.address()), maps.len());
        maps.push(Map { key, value });
    }
    Ok((maps, places))
}

fn words(bytes: &[u8]) -> Option<[u32; 3]> {
    let (words, []) = bytes.as_chunks() else {
        return None;
    };
    Some(
        <[[u8; 4]; 3]>::try_from(words)
            .ok()?
            .map(u32::from_ne_bytes),
    )
}

/// The symbol each relocated instruction of a section refers to, by the instruction's address.
fn references(file: &File<'_>, section: SectionIndex) -> anyhow::Result<HashMap<u64, Place>> {
    let mut references = HashMap::new();
    for (offset, relocation) in file.section_by_index(section)?.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            continue;
        };
        let symbol: Symbol<'_, '_> = file.symbol_by_index(symbol)?;
        references.extend(
            symbol
                .section_index()
                .map(|section| (offset, (section, symbol.address()))),
        );
    }
    Ok(references)
}

fn address(index: usize) -> u64 {
    (index * insn::SIZE) as u64
}
