//! Numbers in the environment, which choose how long a test runs and what it draws.

use std::{env, error::Error, str::FromStr};

use anyhow::{Context as _, Result};

/// The number in a variable; `None` without it.
///
/// # Errors
/// The variable has a value that is not such a number.
pub fn number<T: FromStr<Err: Error + Send + Sync + 'static>>(variable: &str) -> Result<Option<T>> {
    let text = env::var(variable).ok();
    text.map(|text| text.parse().with_context(|| format!("{variable}={text}")))
        .transpose()
}
