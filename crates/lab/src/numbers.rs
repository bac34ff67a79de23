//! Formats numbers for people: times in a suitable unit, bytes, counts with commas.

/// A time in nanoseconds with three digits: `812 ns`, `1.23 ms`, `12.3 s`.
pub(crate) fn time(ns: f64) -> String {
    let units = [("ns", 1.0, 1e3), ("us", 1e3, 1e6), ("ms", 1e6, 1e9), ("s", 1e9, f64::INFINITY)];
    // What rounds to a thousand of a unit is one of the next unit.
    let unit = units.iter().find(|(_, size, end)| (ns / size * 10.0).round() * size < end * 10.0);
    let (name, size, _) = unit.unwrap_or(&("s", 1e9, 0.0));
    format!("{} {name}", three_digits(ns / size))
}

/// Bytes in powers of 1000, as for networks.
pub(crate) fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut at) = (count, 0);
    while value >= 999.5 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    let unit = units.get(at).copied().unwrap_or_default();
    if at == 0 { format!("{value:.0} {unit}") } else { format!("{} {unit}", three_digits(value)) }
}

/// A whole number with commas.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number per second: whole, or with digits if it is small.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { count(per_second.round() as u64) } else { three_digits(per_second) }
}

/// A share as a percentage.
pub(crate) fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

fn three_digits(value: f64) -> String {
    if value >= 99.95 || value == 0.0 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(["812 ns", "1.23 ms"], [time(812.0), time(1_234_567.0)].map(|it| it));
        assert_eq!((time(0.0), time(999_990.0)), ("0 ns".to_owned(), "1.00 ms".to_owned()));
        assert_eq!((time(12.34e9), time(5400e9)), ("12.3 s".to_owned(), "5400 s".to_owned()));
        assert_eq!([bytes(999.0), bytes(1234.0)], ["999 B", "1.23 kB"]);
        assert_eq!([count(0), count(999), count(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!([rate(12345.6), rate(12.34), rate(0.5)], ["12,346", "12.3", "0.50"]);
        assert_eq!((share(1, 8), share(0, 0)), ("12.5 %".to_owned(), "0.0 %".to_owned()));
    }
}
