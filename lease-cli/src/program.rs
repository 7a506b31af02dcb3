//! From arguments to an exit status.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{self, Cli, Command, QuorumCommand};
use crate::exit::{Exit, Failure};
use crate::store::Target;
use crate::{
    acquire, admit, doctor, fence, held, inspect, output, queue, quorum, run, schema, stderr,
    stores,
};

pub(crate) fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|a| a == run::GUARD) {
        return run::guard();
    }
    let exit = match Cli::try_parse() {
        Ok(cli) => start(cli),
        Err(error) => usage(&error),
    };
    stderr::flush();
    exit.into()
}

fn start(cli: Cli) -> Exit {
    stderr::start();
    // One thread, and it is the main one: the parent-death signal of a child
    // fires when the *thread* that forked it ends (see run/child.rs).
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            stderr::say(&format!("cannot start: {error}"));
            return Exit::Internal;
        }
    };
    let ended = runtime.block_on(dispatch(cli));
    // A store's thread that hangs must not keep us.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit,
        Err(Failure { exit, message }) => {
            if !message.is_empty() {
                stderr::say(&message);
            }
            exit
        }
    }
}

async fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let url = match &cli.command {
        Command::Doctor(args) => args.url.clone().or(cli.store),
        Command::Quorum(args::Quorum {
            command: QuorumCommand::Init(args),
        }) => args.url.clone().or(cli.store),
        _ => cli.store,
    };
    let target = || Target::resolve(url);
    match cli.command {
        Command::Run(args) => run::run(target()?, args).await,
        Command::Acquire(args) => acquire::command(target()?, args).await,
        Command::Renew(args) => held::renew(target()?, args).await,
        Command::Release(args) => held::release(target()?, args).await,
        Command::Admit(args) => admit::admit(target()?, args).await,
        Command::Inspect(args) => inspect::inspect(target()?, args).await,
        Command::List(args) => inspect::list(target()?, args).await,
        Command::Fence(args) => fence::fence(target()?, args).await,
        Command::Stores(args) => stores::stores(args),
        Command::Doctor(args) => doctor::doctor(target()?, args).await,
        Command::Schema(args) => schema::schema(&target()?, &args),
        Command::Quorum(args) => match args.command {
            QuorumCommand::Init(args) => quorum::init(&target()?, args).await,
        },
        Command::Queue(args) => queue::queue(target()?, args.command).await,
    }
}

/// Help goes out as it is; an error becomes one line, without the secrets of a
/// URL that stood in the wrong place.
fn usage(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody is left to be told when stdout is gone.
            let _ = error.print();
            Exit::Success
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => {
            let arguments = std::env::args_os().skip(1);
            let arguments: Vec<_> = arguments
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect();
            stderr::say(&usage_line(&error.render().to_string(), &arguments));
            Exit::Usage
        }
    }
}

fn usage_line(rendered: &str, arguments: &[String]) -> String {
    let parts: Vec<_> = output::without_arguments(rendered, arguments)
        .split("\n\n")
        .map(output::one_line)
        .filter(|part| !part.is_empty() && !part.starts_with("For more information"))
        .collect();
    let line = parts.join("; ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    format!("{line}; see lease --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line_without_secrets() {
        let args = ["lease", "inspect", "k", "redis://u:hunter2@h/0?password=x"];
        let error = Cli::try_parse_from(args).unwrap_err();
        let line = usage_line(&error.render().to_string(), &args.map(str::to_owned));
        assert!(!line.contains('\n') && !line.contains("hunter2"), "{line}");
        assert!(line.starts_with("unexpected argument"), "{line}");
    }
}
