//! The parent's life from outside: this program starts itself as an echo server under the real
//! parent, sends signals, kills processes, and counts what clients lose. What a child does with a
//! connection is as simple as can be; all that is tested is the parent.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test with a main of its own"
)]

#[path = "lifecycle/buckets.rs"]
mod buckets;
#[path = "lifecycle/echo.rs"]
mod echo;
#[path = "lifecycle/reload.rs"]
mod reload;
#[path = "lifecycle/runner.rs"]
mod runner;
#[path = "lifecycle/start_stop.rs"]
mod start_stop;
#[path = "lifecycle/upgrade.rs"]
mod upgrade;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--echo") {
        std::process::exit(echo::main(&arguments[at + 1], &arguments[at + 2]));
    }
    let filter = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    let tests: Vec<(&str, fn())> =
        [start_stop::TESTS, reload::TESTS, buckets::TESTS, upgrade::TESTS].concat();
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, test) in tests {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        match std::panic::catch_unwind(test) {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Err(_) => {
                failed.push(name);
                println!("test {name} ... FAILED");
            }
        }
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out",
        failed.len()
    );
    std::process::exit(i32::from(!failed.is_empty()));
}
