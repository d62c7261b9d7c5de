//! Panics of targets, without a message for each.
//!
//! Code under test may catch a panic of a library, thousands of times in a run. Only the message of
//! a panic that ends the run is printed.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    /// The message of the last panic while this thread runs a target.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Silence on this thread until it is dropped. Panics of other threads are printed as before.
pub(crate) struct Quiet(());

impl Quiet {
    pub(crate) fn start() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            let print = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                let is_kept = LAST.with_borrow_mut(|last| {
                    last.as_mut().map(|last| *last = info.to_string()).is_some()
                });
                if !is_kept {
                    print(info);
                }
            }));
        });
        LAST.set(Some(String::new()));
        Self(())
    }

    /// Returns the message of the last panic.
    pub(crate) fn last() -> String {
        LAST.with_borrow(|last| last.clone().unwrap_or_default())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        LAST.set(None);
    }
}
