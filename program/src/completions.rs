//! `meshloom completions`: what a shell needs to complete words of this program.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &Arguments, mut program: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut program, "meshloom", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))
}
