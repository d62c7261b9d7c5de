//! Advice on an input that is kept.

use std::path::Path;

/// The command that repeats an input.
pub(crate) fn repeat(name: &str, path: &Path) -> String {
    let path = path.display();
    format!(
        "fuzz {name}: the input is kept in {path}; repeat it by: cargo xtask fuzz {name} --input \
         {path}"
    )
}
