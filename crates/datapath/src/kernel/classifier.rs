//! A TC program of the object, loaded.

use aya::{Ebpf, programs::SchedClassifier};

use crate::{DatapathError, kernel::interrupted};

/// Loads the program of this name.
pub(crate) fn load<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, DatapathError> {
    let program: &mut SchedClassifier = ebpf
        .program_mut(name)
        .ok_or(DatapathError::Missing {
            kind: "program",
            name,
        })?
        .try_into()
        .map_err(DatapathError::program(name))?;
    interrupted::retry(|| program.load()).map_err(DatapathError::program(name))?;
    Ok(program)
}
