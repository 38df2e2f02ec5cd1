//! `meshloom man`: manual pages, for `man -l -`; `meshloom completions`: scripts for shells.

use clap::{Args, Command};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::failure::Failure;
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    /// The command whose page it is, as simulate or bench fft [default: the page of the program]
    command: Vec<String>,
}

#[derive(Args)]
pub struct CompletionArguments {
    /// The shell
    shell: Shell,
}

/// Prints a script that completes words of the program.
///
/// # Errors
/// Those of standard output.
pub fn complete(arguments: &CompletionArguments, mut program: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut program, "meshloom", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))
}

pub fn run(arguments: &Arguments, mut program: Command) -> Result<(), Failure> {
    program.build();
    let mut page = &program;
    for name in &arguments.command {
        page = page.find_subcommand(name).ok_or_else(|| {
            let words = arguments.command.join(" ");
            Failure::Usage(format!(
                "there is no command `{words}`; `meshloom --help` lists all, and `meshloom bench --help` its subjects"
            ))
        })?;
    }
    let name =
        ["meshloom"].into_iter().chain(arguments.command.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    let mut text = Vec::new();
    // Writing to memory does not fail.
    terminal::written(Man::new(page.clone().display_name(name)).render(&mut text))?;
    terminal::print(&String::from_utf8_lossy(&text))
}
