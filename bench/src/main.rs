//! bench.

fn main() {}
