//! The command line of Evenkeel.

fn main() {}
