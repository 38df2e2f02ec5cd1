//! The package: its contents and the order of its modules.

#[path = "../shared/documents.rs"]
mod markdown;

mod contents;
mod documents;
mod prose;
mod rooms;
