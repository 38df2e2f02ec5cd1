//! `meshloom man`: manual pages, for `man -l -`.

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::Failure;
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    /// The command whose page it is, as simulate or bench fft [default: the page of the program]
    command: Vec<String>,
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
