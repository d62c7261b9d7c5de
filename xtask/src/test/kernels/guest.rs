//! The script that the booted kernel runs: mounts, then each feature's tests between two marks.
//! Pure.

use std::{ffi::OsString, path::PathBuf};

use super::{
    programs::Programs,
    set::{Feature, Work},
};

/// Before the first feature, with the kernel's release.
pub(super) const BOOTED: &str = "@booted ";
/// Before a feature's output, with its number.
pub(super) const BEGIN: &str = "@begin ";
/// After it, with the exit status.
pub(super) const END: &str = "@end ";

/// Seconds that the tests of one feature may take.
const LIMIT: u32 = 15 * 60;

const MOUNTS: &str = "\
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
ip link set lo up
";

/// Programs and variables that a run needs, which all lie on the machine's file system.
#[derive(Debug)]
pub(super) struct Guest {
    /// The agent.
    pub(super) agent: PathBuf,
    /// The test programs.
    pub(super) programs: Programs,
    /// Variables of the test programs.
    pub(super) variables: Vec<(String, OsString)>,
}

impl Guest {
    /// The script for these features, which writes to a device.
    pub(super) fn script(&self, output: &str, features: &[&Feature]) -> String {
        let exports = self.variables.iter();
        let exports = exports
            .map(|(name, value)| format!("export {name}={}", quoted(&value.to_string_lossy())));
        let mut lines: Vec<String> = exports.collect();
        lines.push(format!("echo \"{BOOTED}$(uname -r)\""));
        for (number, feature) in features.iter().enumerate() {
            lines.push(format!("echo '{BEGIN}{number}'"));
            if !feature.modules.is_empty() {
                lines.push(format!("modprobe -a {}", feature.modules.join(" ")));
            }
            lines.push(self.command(&feature.work));
            lines.push(format!("echo \"{END}$?\""));
        }
        // The guest has no init that could power it off.
        lines.push("echo o >/proc/sysrq-trigger".to_owned());
        lines.push("while :; do :; done".to_owned());
        format!(
            "{MOUNTS}exec >/dev/{output} 2>&1 </dev/null\n{}\n",
            lines.join("\n")
        )
    }

    fn command(&self, work: &Work) -> String {
        match work {
            Work::Check => format!("{} check -o json", quoted(&self.agent.to_string_lossy())),
            Work::Tests(program, tests) => {
                let (program, dir) = self.programs.of(program);
                format!(
                    "cd {} && timeout -s KILL {LIMIT} {} --show-output --color=never \
                     --test-threads=2 --exact {}",
                    quoted(&dir.to_string_lossy()),
                    quoted(&program.to_string_lossy()),
                    tests.join(" ")
                )
            }
        }
    }
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_runs_between_its_marks() {
        let features = [
            Feature {
                name: "check",
                since: "5.10",
                until: None,
                modules: &[],
                work: Work::Check,
            },
            Feature {
                name: "tunnel",
                since: "5.10",
                until: None,
                modules: &["ipip"],
                work: Work::Tests("t", &["a::b", "c"]),
            },
        ];
        let guest = Guest {
            agent: "/it's/agent".into(),
            programs: Programs::of_one("t", "/deps/t-1", "/tests"),
            variables: vec![("X".to_owned(), "1".into())],
        };
        let script = guest.script("ttyS1", &features.each_ref());
        let expected = "echo '@begin 1'\nmodprobe -a ipip\ncd '/tests' && timeout -s KILL 900 \
            '/deps/t-1' --show-output \
                        --color=never --test-threads=2 --exact a::b c\necho \"@end $?\"\n";
        assert!(script.contains(expected), "{script}");
        assert!(
            script.contains(r"'/it'\''s/agent' check -o json") && script.contains("export X='1'\n"),
            "{script}"
        );
    }
}
