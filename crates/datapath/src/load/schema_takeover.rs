//! Pins that a build with another schema left in the same pin root: an update, or a way back.
//!
//! Its programs are on the devices, over maps that this build cannot read. The links are moved to
//! this build's directory, so that each attachment swaps the program in the link it finds there: a
//! device has one program at all times, never none and never two. Maps and programs of the other
//! build live as long as a link uses them.

use std::{fs, io, path::Path};

use crate::{PinRoot, attach};

/// Takes the links over and removes all other pins of those builds. Links that this build does not
/// know are removed with them, which takes their programs off. Returns the directories.
pub fn take_over(pins: &PinRoot) -> Vec<String> {
    removed(pins, |other| move_links(&other.links(), &pins.links()))
}

/// Removes the pins of those builds, with which their programs come off the devices: packets take
/// the kernel's path.
pub fn remove(pins: &PinRoot) -> Vec<String> {
    removed(pins, |_| Ok(()))
}

fn removed(pins: &PinRoot, prepare: impl Fn(&PinRoot) -> io::Result<()>) -> Vec<String> {
    let mut done = Vec::new();
    for other in pins.of_other_schemas() {
        let path = other.dir().display().to_string();
        match prepare(&other).and_then(|()| fs::remove_dir_all(other.dir())) {
            Ok(()) => done.push(path),
            Err(error) => {
                tracing::warn!(%error, path, "programs of another version of the agent are left");
            }
        }
    }
    done
}

/// Moves the links whose names this build knows, unless it has one of the name.
fn move_links(from: &Path, to: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let place = to.join(&name);
        if name.to_str().is_some_and(attach::is_link_name) && !place.exists() {
            fs::rename(from.join(&name), place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pin root with these files, none of which is a pin.
    fn root(files: &[&str]) -> (tempfile::TempDir, PinRoot) {
        let scratch = tempfile::tempdir().expect("a directory");
        for file in files {
            let path = scratch.path().join(file);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(&path, file).expect("a file");
        }
        let pins = PinRoot::new(scratch.path());
        fs::create_dir_all(pins.links()).expect("a directory");
        (scratch, pins)
    }

    fn links(pins: &PinRoot) -> Vec<(String, String)> {
        let entries = fs::read_dir(pins.links())
            .expect("a directory")
            .map(|entry| entry.expect("an entry"));
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).expect("a file");
            (entry.file_name().into_string().expect("a name"), text)
        };
        let mut links: Vec<_> = entries.map(read).collect();
        links.sort();
        links
    }

    #[test]
    fn known_links_are_moved_and_all_else_of_other_schemas_goes() {
        let (scratch, pins) = root(&[
            "v0/links/from_pod-3",
            "v0/links/early_guard-2",
            "v0/links/count_polls",
            "v0/links/of_the_future-3",
            "v0/maps/PEERS",
            "v9/links/from_pod-3",
            "v9/links/to_pod-3",
            "v2/links/to_pod-3",
            "other/links/from_pod-9",
            "vx/links/from_pod-9",
        ]);
        let mut done = take_over(&pins);
        done.sort();
        assert_eq!(
            done,
            ["v0", "v9"].map(|dir| scratch.path().join(dir).display().to_string())
        );
        let names: Vec<_> = links(&pins).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["count_polls", "early_guard-2", "from_pod-3", "to_pod-3"]
        );
        let of_our_own = ("to_pod-3".to_owned(), "v2/links/to_pod-3".to_owned());
        assert!(
            links(&pins).contains(&of_our_own),
            "a link of this build stays"
        );
        let mut left: Vec<_> = fs::read_dir(scratch.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["other", "v2", "vx"]);
    }

    #[test]
    fn an_agent_without_programs_removes_those_of_other_schemas() {
        let (scratch, pins) = root(&["v0/links/from_pod-3", "v2/maps/PEERS"]);
        assert_eq!(remove(&pins).len(), 1);
        assert!(links(&pins).is_empty());
        assert!(scratch.path().join("v2/maps/PEERS").exists());
    }
}
