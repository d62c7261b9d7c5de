//! The state directory on a real file system. What needs a second user is in the tests of whole
//! nodes.

use std::{fs, os::unix::net::UnixListener, process, thread};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
}

fn flock(path: &Path) -> Flock<File> {
    let file = File::open(path).expect("opened for reading");
    Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).expect("free")
}

#[test]
fn one_agent_at_a_time_and_the_refusal_names_the_holder() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    let first = StateDir::claim(&state, None).expect("free");
    let refusal = StateDir::claim(&state, None)
        .expect_err("taken")
        .to_string();
    let expected = format!(
        "the state directory {} is in use by process {} (",
        state.display(),
        process::id()
    );
    assert!(refusal.starts_with(&expected), "{refusal}");
    drop(first);
    StateDir::claim(&state, None).expect("free again");
}

#[test]
fn files_are_private_and_a_directory_is_open_where_subnet_env_is_in_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("run/state");
    for (subnet_file, expected) in [
        (None, 0o755),
        (Some(state.join("subnet.env")), 0o755),
        (Some(dir.path().join("run/subnet.env")), 0o700),
    ] {
        StateDir::claim(&state, subnet_file.as_deref()).expect("free");
        assert_eq!(
            (mode(&state), mode(&lock(&state))),
            (expected, 0o600),
            "{subnet_file:?}"
        );
        assert_eq!(mode(&dir.path().join("run")), 0o755);
        fs::remove_dir_all(&state).expect("removed");
    }
}

#[test]
fn rights_that_are_too_wide_are_corrected() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["clsact", "sysctls", "lease", "subnet.env"] {
        fs::write(dir.path().join(name), "").expect("written");
        set_mode(&dir.path().join(name), 0o644);
    }
    set_mode(dir.path(), 0o777);
    StateDir::claim(dir.path(), None).expect("free");
    let modes =
        ["clsact", "sysctls", "lease", "subnet.env"].map(|name| mode(&dir.path().join(name)));
    assert_eq!(
        (mode(dir.path()), modes),
        (0o755, [0o600, 0o600, 0o600, 0o644])
    );
}

#[test]
fn a_directory_of_all_users_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    set_mode(dir.path(), 0o1777);
    let refusal = StateDir::claim(dir.path(), None)
        .expect_err("shared")
        .to_string();
    assert!(
        refusal.contains("(mode 1777); choose another --state-dir"),
        "{refusal}"
    );
    assert_eq!(
        (
            mode(dir.path()),
            fs::read_dir(dir.path()).expect("listed").count()
        ),
        (0o1777, 0)
    );
}

/// By a descriptor from before, which no change of the mode takes away.
#[test]
fn a_lock_on_a_file_that_others_could_open_keeps_no_agent_out() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(lock(dir.path()), "").expect("written");
    set_mode(&lock(dir.path()), 0o644);
    let foreign = flock(&lock(dir.path()));
    let first = StateDir::claim(dir.path(), None).expect("no agent runs");
    assert_eq!(mode(&lock(dir.path())), 0o600);
    assert!(matches!(
        StateDir::claim(dir.path(), None),
        Err(StateDirError::Taken { .. })
    ));
    drop((first, foreign));
    StateDir::claim(dir.path(), None).expect("free again");
    assert!(!lock_in_making(dir.path()).exists());
}

#[test]
fn a_planted_lock_file_in_the_making_keeps_no_agent_out() {
    let dir = tempfile::tempdir().expect("a directory");
    for file in [lock(dir.path()), lock_in_making(dir.path())] {
        fs::write(&file, "").expect("written");
        set_mode(&file, 0o644);
    }
    let foreign = flock(&lock_in_making(dir.path()));
    let agent = StateDir::claim(dir.path(), None).expect("no agent runs");
    assert_eq!(
        (mode(&lock(dir.path())), lock_in_making(dir.path()).exists()),
        (0o600, false)
    );
    drop((agent, foreign));
}

#[test]
fn an_agent_of_an_earlier_version_is_found_by_its_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(lock(dir.path()), "").expect("written");
    set_mode(&lock(dir.path()), 0o644);
    let agent = (
        flock(&lock(dir.path())),
        UnixListener::bind(status_socket(dir.path())).expect("bound"),
    );
    let refusal = StateDir::claim(dir.path(), None)
        .expect_err("it runs")
        .to_string();
    assert!(
        refusal.contains(&format!("in use by process {} (", process::id())),
        "{refusal}"
    );
    assert_eq!(
        mode(&lock(dir.path())),
        0o644,
        "the file it has locked stays"
    );
    drop(agent);
    StateDir::claim(dir.path(), None).expect("its socket stayed, and nothing listens");
}

/// Each on an exposed file: all replace it, and one may.
#[test]
fn of_many_that_start_at_once_one_gets_the_lock() {
    for _ in 0..100 {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(lock(dir.path()), "").expect("written");
        set_mode(&lock(dir.path()), 0o644);
        let barrier = std::sync::Barrier::new(8);
        let claims: Vec<_> = thread::scope(|scope| {
            let claim = || {
                barrier.wait();
                StateDir::claim(dir.path(), None)
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let held = claims.iter().filter(|claim| claim.is_ok()).count();
        assert_eq!(held, 1, "{claims:?}");
    }
}
