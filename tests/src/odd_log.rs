//! Generates access logs like those of servers on the open internet: valid lines of the combined
//! format, and among them what scanners, broken clients and broken disks leave behind. The same
//! seed writes the same log.

use std::io::{self, Write};

/// The counts of the written lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// All lines.
    pub lines: u64,
    /// Lines that are requests.
    pub requests: u64,
    /// Lines that match the format but are not HTTP requests.
    pub no_requests: u64,
    /// Lines that do not match the format.
    pub malformed: u64,
}

/// Pseudo-random numbers (xorshift64*, Marsaglia and Vigna).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

const AGENTS: [&str; 5] = [
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/120.0",
    "Mozilla/5.0 (compatible; Bot/2.1; +http://www.example.org/bot.html)",
    "-",
    "curl/8.5.0",
    r#"An agent \"with quotes\" and a backslash \\"#,
];

/// Writes a log of `lines` lines, with `per_second` requests a second.
///
/// # Errors
///
/// Those of the writer.
pub fn write(out: &mut impl Write, lines: u64, per_second: u64, seed: u64) -> io::Result<Written> {
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    let mut written = Written { lines, ..Written::default() };
    for number in 0..lines {
        let second = number / per_second.max(1);
        let (minute, hour, day) = (second / 60 % 60, second / 3600 % 24, second / 86_400);
        let time = format!(
            "[{:02}/Oct/2000:{hour:02}:{minute:02}:{:02} -0700]",
            1 + day % 31,
            second % 60
        );
        let client = match random.below(4) {
            0 => format!("2001:db8::{:x}:{:x}", random.below(65_536), random.below(65_536)),
            _ => format!("192.0.2.{}", random.below(256)),
        };
        let agent = AGENTS.get(random.below(5) as usize).copied().unwrap_or("-");
        let front = format!("{client} - - {time}");
        // A few in a thousand are odd, as in the logs of public servers.
        match random.below(1000) {
            0 => {
                written.no_requests += 1;
                writeln!(out, "{front} \"-\" 408 - \"-\" \"-\"")?;
            }
            1 => {
                written.no_requests += 1;
                writeln!(out, "{front} \"\\x16\\x03\\x01\\x02\\\\\\x01\" 400 226 \"-\" \"-\"")?;
            }
            2 => {
                written.no_requests += 1;
                writeln!(out, "{front} \"GET /a b c HTTP/1.1\" 400 226 \"-\" \"-\"")?;
            }
            3 => {
                written.malformed += 1;
                let path = "x".repeat(70_000);
                writeln!(out, "{front} \"GET /{path} HTTP/1.1\" 414 248 \"-\" \"{agent}\"")?;
            }
            4 => {
                written.malformed += 1;
                writeln!(out, "{}", front.get(..20).unwrap_or_default())?;
            }
            5 => {
                written.malformed += 1;
                out.write_all(&[0; 300])?;
                out.write_all(b"\n")?;
            }
            odd => {
                written.requests += 1;
                let path = match odd {
                    6 => format!("/long?{}", "y".repeat(6_000)),
                    7 => "/caf\\xe9".to_owned(),
                    8 => "/q?a=\\\"b\\\"".to_owned(),
                    _ => format!("/page/{}.html", random.below(5_000)),
                };
                let user = if odd == 9 { "John Q. Public" } else { "-" };
                writeln!(
                    out,
                    "{client} - {user} {time} \"GET {path} HTTP/1.1\" 200 5 \"-\" \"{agent}\""
                )?;
            }
        }
    }
    Ok(written)
}
