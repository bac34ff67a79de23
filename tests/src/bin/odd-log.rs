//! Writes an access log with the oddities of real logs: `odd-log LINES [LINES-A-SECOND] >
//! access.log`.

use evenkeel_tests::odd_log;
use std::io::{self, BufWriter, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(Ok(lines)), Ok(per_second)) = (numbers.next(), numbers.next().unwrap_or(Ok(100)))
    else {
        let _gone = writeln!(io::stderr(), "usage: odd-log LINES [LINES-A-SECOND]");
        return ExitCode::from(2);
    };
    let mut out = BufWriter::new(io::stdout().lock());
    match odd_log::write(&mut out, lines, per_second, 1).and_then(|_| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _gone = writeln!(io::stderr(), "odd-log: {error}");
            ExitCode::FAILURE
        }
    }
}
