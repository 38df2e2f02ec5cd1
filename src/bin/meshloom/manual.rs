//! `meshloom man`: manual pages, for `man -l -`.

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::Failure;
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    /// The command whose page it is [default: the page of the program]
    command: Option<String>,
}

pub fn run(arguments: &Arguments, mut program: Command) -> Result<(), Failure> {
    program.build();
    let page = match &arguments.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone().display_name(format!("meshloom-{name}")),
            None => return Err(Failure::Usage(format!("there is no command `{name}`; `meshloom --help` lists all"))),
        },
    };
    let mut text = Vec::new();
    // Writing to memory does not fail.
    terminal::written(Man::new(page).render(&mut text))?;
    terminal::print(&String::from_utf8_lossy(&text))
}
