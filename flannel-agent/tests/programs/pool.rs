//! Threads that keep their programs loaded from test to test: a load takes half a second of CPU,
//! and there are some 300 benches.
//!
//! Each thread has its own mount namespace, where the pins are, and each test has its own network
//! namespace. They end with the process, and leave nothing behind.

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use aya::{maps::MapData, programs::ProgramInfo};
use flannel_common::abi::{maps::ALL, program::Program};
use flannel_datapath::PinRoot;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};

use crate::{bench::Bench, wipe::wipe};

/// A test, and where its result is waited for.
struct Task {
    test: Box<dyn FnOnce(&mut Bench) + Send>,
    result: Sender<thread::Result<()>>,
}

/// The threads without a test.
static IDLE: Mutex<Vec<Sender<Task>>> = Mutex::new(Vec::new());

fn idle<T>(change: impl FnOnce(&mut Vec<Sender<Task>>) -> T) -> T {
    change(&mut IDLE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a test on a thread that has the programs loaded and their maps empty.
pub(crate) fn run(test: impl FnOnce(&mut Bench) + Send + 'static) {
    let worker = idle(Vec::pop).unwrap_or_else(|| {
        let (worker, tasks) = mpsc::channel();
        thread::spawn(move || work(&tasks));
        worker
    });
    let (sender, result) = mpsc::channel();
    let task = Task {
        test: Box::new(test),
        result: sender,
    };
    worker.send(task).expect("the thread waits for a test");
    let result = result.recv().expect("the test's panic is caught");
    idle(|idle| idle.push(worker));
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

fn work(tasks: &Receiver<Task>) {
    let root = private_directory();
    let mut kept = None;
    for (number, Task { test, result }) in tasks.iter().enumerate() {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may unshare");
        let loaded = kept
            .take()
            .unwrap_or_else(|| Loaded::new(root.join(number.to_string())));
        let ended = catch_unwind(AssertUnwindSafe(|| test(&mut loaded.bench())));
        if ended.is_ok() && loaded.is_unchanged() {
            kept = Some(loaded);
        } else {
            loaded.end();
        }
        result.send(ended).expect("the test waits for its end");
    }
}

/// A directory that only this thread and those that it starts can see.
fn private_directory() -> PathBuf {
    let directory = env::temp_dir();
    unshare(CloneFlags::CLONE_NEWNS).expect("root may unshare");
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .expect("mounts of this namespace stay in it");
    let tmpfs = Some("tmpfs");
    mount(tmpfs, &directory, tmpfs, MsFlags::empty(), None::<&str>).expect("root may mount");
    directory
}

/// Programs and maps below a directory.
struct Loaded {
    directory: PathBuf,
    pins: PinRoot,
    objects: Vec<u32>,
}

impl Loaded {
    fn new(directory: PathBuf) -> Self {
        std::fs::create_dir(&directory).expect("a directory of this thread");
        let pins = PinRoot::new(&directory);
        Bench::load(&pins);
        let objects = objects(&pins).expect("the loader pins all of them");
        Self {
            directory,
            pins,
            objects,
        }
    }

    /// The programs with empty maps.
    fn bench(&self) -> Bench {
        wipe(&self.pins);
        Bench::open(self.pins.clone())
    }

    /// Returns false if a test loaded others or removed a pin.
    fn is_unchanged(&self) -> bool {
        self.pins.load_record().exists() && objects(&self.pins).as_ref() == Some(&self.objects)
    }

    fn end(self) {
        // A process that another test is just starting may hold a copy of an open directory for a
        // moment.
        umount2(&self.directory, MntFlags::MNT_DETACH).expect("the bpffs is mounted");
    }
}

/// The kernel's ids of all pinned programs and maps; `None` if a pin is missing.
fn objects(pins: &PinRoot) -> Option<Vec<u32>> {
    let programs = Program::ALL.map(|program| {
        let info = ProgramInfo::from_pin(pins.program(program)).ok()?;
        Some(info.id())
    });
    let maps = ALL.map(|name| {
        let info = MapData::from_pin(pins.map(name)).ok()?.info().ok()?;
        Some(info.id())
    });
    programs.into_iter().chain(maps).collect()
}
