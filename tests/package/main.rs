//! The package: its contents and the order of its modules.

mod contents;
mod prose;
mod rooms;
