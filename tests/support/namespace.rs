//! A network namespace for one test.

use std::thread;

use flannel_netlink::{KernelEvents, Netlink};
use nix::{
    sched::{CloneFlags, unshare},
    unistd::geteuid,
};

use crate::not_run::not_run;

/// The netlink sockets of a test. Use them only on the thread whose namespace they belong to.
pub(crate) struct Namespace {
    pub(crate) netlink: Netlink,
    pub(crate) events: KernelEvents,
}

/// Runs `set_up` and then `test` in a new network namespace, and in new namespaces of the kinds in
/// `others`.
pub(crate) fn in_namespace_with(
    others: CloneFlags,
    set_up: impl FnOnce() + Send + 'static,
    test: impl AsyncFnOnce(Namespace) + Send + 'static,
) {
    if !geteuid().is_root() {
        not_run("a test in a network namespace", "it needs root");
        return;
    }
    let in_its_own_namespace = move || {
        unshare(CloneFlags::CLONE_NEWNET | others).expect("root may unshare");
        set_up();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (netlink, events) = Netlink::connect().expect("netlink sockets");
            test(Namespace { netlink, events }).await;
        });
    };
    if let Err(panic) = thread::spawn(in_its_own_namespace).join() {
        std::panic::resume_unwind(panic);
    }
}
