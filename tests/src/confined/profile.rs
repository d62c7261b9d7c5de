//! A seccomp profile as container runtimes read it, and its filter for this kernel.
//!
//! This module does the work of a runtime. System calls that this architecture does not have are
//! left out, and each rule has its action. All conditions of a rule have to hold, and any rule of
//! several for one name may match. Actions other than allowing and refusing are errors, and so are
//! unknown members.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use nix::libc::EPERM;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::Deserialize;
use syscalls::Sysno;

/// The file: `LinuxSeccomp` of the OCI runtime specification, with the comments Docker knows.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    default_action: Action,
    default_errno_ret: Option<u32>,
    /// The rules.
    pub syscalls: Vec<Rule>,
}

/// System calls, and what becomes of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Their names.
    pub names: Vec<String>,
    action: Action,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<Condition>,
    /// For people.
    #[serde(rename = "comment")]
    pub comment: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Action {
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
}

/// One argument, compared.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Condition {
    index: u8,
    value: u64,
    value_two: u64,
    op: Operator,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Operator {
    /// The bits of `value` are those of `valueTwo`.
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

impl Profile {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Self> {
        let profile: Self = serde_json::from_str(text)?;
        ensure!(
            profile.default_action == Action::Errno,
            "the default action lets everything through"
        );
        Ok(profile)
    }

    /// Filters this thread from now on, and what it starts. Privileges cannot be gained any more.
    pub fn install(&self) -> Result<()> {
        for program in self.programs()? {
            seccompiler::apply_filter(&program).context("the kernel refused the filter")?;
        }
        Ok(())
    }

    /// Returns one program for each rule with its own error number, and last the one that refuses
    /// unlisted system calls. The kernel runs them all and takes the strictest answer.
    fn programs(&self) -> Result<Vec<BpfProgram>> {
        let mut listed = Rules::new();
        let mut programs = Vec::new();
        for rule in &self.syscalls {
            let numbers = rule
                .names
                .iter()
                .filter_map(|name| system_call(name))
                .map(|call| i64::from(call.id()));
            if rule.action == Action::Errno {
                ensure!(
                    rule.args.is_empty(),
                    "{:?} is refused whatever its arguments are",
                    rule.names
                );
                let rules = numbers.clone().map(|number| (number, Vec::new())).collect();
                let refused = SeccompAction::Errno(rule.errno_ret.unwrap_or(EPERM.cast_unsigned()));
                programs.push(program(rules, SeccompAction::Allow, refused)?);
            }
            for number in numbers {
                let rules = listed.entry(number).or_default();
                if !rule.args.is_empty() {
                    let conditions = rule
                        .args
                        .iter()
                        .map(Condition::compile)
                        .collect::<Result<_, _>>()?;
                    rules.push(SeccompRule::new(conditions)?);
                }
            }
        }
        let refused = SeccompAction::Errno(self.default_errno_ret.unwrap_or(EPERM.cast_unsigned()));
        programs.push(program(listed, refused, SeccompAction::Allow)?);
        Ok(programs)
    }
}

/// Returns the system call of this name, if this architecture has it. The table of arm64 has one
/// under another name than the kernel and libseccomp.
fn system_call(name: &str) -> Option<Sysno> {
    let name = match name {
        "newfstatat" if cfg!(target_arch = "aarch64") => "fstatat",
        name => name,
    };
    name.parse().ok()
}

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram> {
    let architecture: TargetArch = match std::env::consts::ARCH.try_into() {
        Ok(architecture) => architecture,
        Err(error) => bail!("no filter for {}: {error}", std::env::consts::ARCH),
    };
    Ok(SeccompFilter::new(rules, otherwise, matched, architecture)?.try_into()?)
}

impl Condition {
    fn compile(&self) -> Result<SeccompCondition, seccompiler::BackendError> {
        let Operator::MaskedEqual = self.op;
        SeccompCondition::new(
            self.index,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(self.value),
            self.value_two,
        )
    }
}
