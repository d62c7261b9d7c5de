//! The agent's binary. Under the name `flanneld` it is the daemon.

use std::{io::Write as _, process::ExitCode};

use flannel_agent::{agent, memory};
use flannel_cli::{self as cli, Command};
use flannel_command::NoResult;
use flannel_echo::EchoSockets;
use flannel_host::error_chain::chain;
use flannel_logging::{self as logging, LogFormat};
use flannel_privileges as privileges;

fn main() -> ExitCode {
    memory::return_what_is_freed();
    match cli::parse(std::env::args_os(), std::env::vars_os()) {
        Err(stop) => stop.report(),
        Ok(Command::Run(options)) => {
            logging::init(options.log.level, options.log.format);
            let echo = options.echo_interval.map(|_| EchoSockets::open());
            // While there is one thread: capabilities belong to threads.
            privileges::reduce(&options);
            let format = options.log.format;
            end_agent(run(agent::run(*options, echo)), format)
        }
        Ok(Command::Once(command)) => match run(command.run()) {
            Ok(answer) => {
                print(&answer.text);
                ExitCode::from(answer.code)
            }
            Err(error) if error.is::<NoResult>() => end_with(&error, NoResult::CODE),
            // 1 is a result of commands that look for something.
            Err(error) => end_with(&privileges::advise(error), NoResult::CODE),
        },
    }
}

/// On one thread: the work is one loop and what feeds it, and to wake another thread for each of
/// the kernel's thousands of answers would cost as much as the answers.
fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // Does not wait for a thread that waits for a file system or a name server that hangs.
    runtime.shutdown_background();
    result
}

/// Prints to standard output. A reader that has gone away does not count as an error: it has seen
/// enough.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Ends the agent. A log for programs has the error as one of its records.
fn end_agent(result: anyhow::Result<()>, format: LogFormat) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if format == LogFormat::Text => end_with(&error, 1),
        Err(error) => {
            tracing::error!("{}", chain(error.as_ref()).replace('\n', "; "));
            ExitCode::from(1)
        }
    }
}

/// The one place where an error ends the process: printed once, with everything that caused it.
fn end_with(error: &anyhow::Error, code: u8) -> ExitCode {
    // The reader of standard error may be gone; the exit status is enough.
    let _ = writeln!(std::io::stderr(), "error: {}", chain(error.as_ref()));
    ExitCode::from(code)
}
