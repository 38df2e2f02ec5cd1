//! `meshloom power`.

use clap::Args;

use crate::common::{Common, Failure};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let _ = &arguments.common;
    Err(Failure::Usage("not yet".into()))
}
