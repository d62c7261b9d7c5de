//! The progress of downloads and of compilations, as lines about a step show it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The unit of sizes in lines.
pub(super) const MEGABYTE: u64 = 1_000_000;

/// A download of packages, which are unpacked afterwards.
#[derive(Debug)]
pub(super) struct Download {
    /// The directory of the files that are fetched.
    pub(super) files: PathBuf,
    /// The directory that exists as soon as they are unpacked.
    pub(super) unpacked: PathBuf,
    /// Their size in megabytes, as the last release of the packages had it.
    pub(super) megabytes: u64,
}

impl fmt::Display for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unpacked.exists() {
            f.write_str("unpacking")
        } else {
            write!(
                f,
                "{} of about {} MB",
                size(&self.files) / MEGABYTE,
                self.megabytes
            )
        }
    }
}

/// The bytes of the files in a directory and below it; what cannot be read counts as nothing.
pub(super) fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else {
        return 0;
    };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| size(&entry.path()))
        .sum()
}

/// The packages that Go compiles for one target. Another thread shows the count.
#[derive(Debug, Default)]
pub(super) struct Packages {
    compiled: AtomicUsize,
    total: AtomicUsize,
}

impl Packages {
    /// Sets the number of packages that will be compiled.
    pub(super) fn set_total(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Counts a line that `go build -v` prints, if it names a compiled package.
    pub(super) fn count(&self, line: &str) {
        if is_package(line) {
            self.compiled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Packages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (compiled, total) = (
            self.compiled.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        );
        match total {
            0 => f.write_str("generating code and counting packages"),
            _ if compiled < total => write!(f, "{compiled} of {total} packages"),
            _ => write!(f, "{compiled} packages, linking"),
        }
    }
}

/// Returns true for an import path, and false for the compiler's messages and for what `go list`
/// names after a test.
pub(super) fn is_package(line: &str) -> bool {
    let is_word = !line.is_empty() && !line.contains([' ', '\t', ':']);
    is_word && !line.starts_with('#') && line.strip_suffix(".test").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_counted_up_to_linking() {
        let packages = Packages::default();
        assert_eq!(
            packages.to_string(),
            "generating code and counting packages"
        );
        packages.set_total(2);
        let lines = [
            "net",
            "k8s.io/kubernetes/test/e2e [k8s.io/kubernetes/test/e2e.test]",
            "k8s.io/a.test",
            "# k8s.io/kubernetes/cmd/kubelet",
            "cmd/kubelet/main.go:7:2: undefined: x",
            "",
        ];
        for line in lines {
            packages.count(line);
        }
        assert_eq!(packages.to_string(), "1 of 2 packages");
        packages.count("k8s.io/kubernetes/vendor/golang.org/x/net/http2");
        assert_eq!(packages.to_string(), "2 packages, linking");
    }

    #[test]
    fn a_download_shows_its_size_and_then_that_it_is_unpacked() {
        let dir = std::env::temp_dir().join(format!("xtask-download-{}", std::process::id()));
        let files = dir.join("files");
        fs::create_dir_all(files.join("partial")).expect("a directory");
        fs::write(files.join("a.deb"), vec![0; 1_500_000]).expect("a file");
        fs::write(files.join("partial/b.deb"), vec![0; 500_000]).expect("a file");
        let download = Download {
            files,
            unpacked: dir.join("unpacked"),
            megabytes: 30,
        };
        assert_eq!(download.to_string(), "2 of about 30 MB");
        fs::create_dir(&download.unpacked).expect("a directory");
        assert_eq!(download.to_string(), "unpacking");
        fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(size(&dir), 0);
    }
}
