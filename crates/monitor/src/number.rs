//! Prints numbers as the Apache Portable Runtime does, because programs that read the status page
//! parse this form (apr_snprintf.c: apr_gcvt, which leaves out the zero before the point).

/// `%g`: six significant digits, `.0262535`, `1.e+6`.
pub(crate) fn general(value: f64) -> String {
    significant(value, 6)
}

/// `%.3g`: three significant digits.
pub(crate) fn general3(value: f64) -> String {
    significant(value, 3)
}

fn significant(value: f64, most: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    // `d.ddde±x`: the digits and the place of the point, correctly rounded.
    let scientific = format!("{:.*e}", most - 1, value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        rest => rest,
    };
    // The number is 0.digits times ten to the power of `point`.
    let point = exponent.parse::<i32>().unwrap_or_default() + 1;
    let count = digits.len() as i32;
    let sign = if value < 0.0 { "-" } else { "" };
    if (point >= 0 && point - count > 4) || point < -3 {
        let (first, rest) = digits.split_at(1);
        let (direction, power) = if point < 1 { ('-', 1 - point) } else { ('+', point - 1) };
        return format!("{sign}{first}.{rest}e{direction}{power}");
    }
    if point <= 0 {
        let zeros = "0".repeat(point.unsigned_abs() as usize);
        return format!("{sign}.{zeros}{digits}");
    }
    if count <= point {
        let zeros = "0".repeat((point - count) as usize);
        return format!("{sign}{digits}{zeros}");
    }
    let (whole, fraction) = digits.split_at(point as usize);
    format!("{sign}{whole}.{fraction}")
}

/// Bytes in the page's form (mod_status.c: format_byte_out).
pub(crate) fn bytes(count: u64) -> String {
    const KILO: u64 = 1024;
    const MEGA: u64 = KILO * 1024;
    const GIGA: u64 = MEGA * 1024;
    let over = |unit: u64| count as f64 / unit as f64;
    match count {
        0..5_120 => format!("{count} B"),
        _ if count < MEGA / 2 => format!("{:.1} kB", over(KILO)),
        _ if count < GIGA / 2 => format!("{:.1} MB", over(MEGA)),
        _ => format!("{:.1} GB", over(GIGA)),
    }
}

/// Kilobytes in the page's form (mod_status.c: format_kbyte_out).
pub(crate) fn kilobytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} kB"),
        1_024..1_048_576 => format!("{:.1} MB", count as f64 / 1024.0),
        _ => format!("{:.1} GB", count as f64 / 1_048_576.0),
    }
}

/// `1 day 2 hours 1 minute 3 seconds`, without the parts that are zero, each with a space before it
/// (mod_status.c: show_time).
pub(crate) fn duration(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "day"),
        (seconds / 3_600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let mut text = String::new();
    for (count, unit) in parts {
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            text.push_str(&format!(" {count} {unit}{plural}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_those_of_the_portable_runtime() {
        for (value, text) in [
            (0.0, "0"),
            (0.0262535, ".0262535"),
            (0.5, ".5"),
            (12.0, "12"),
            (9216.0, "9216"),
            (1.230_769_2, "1.23077"),
            (0.083_333_333, ".0833333"),
            (100_000.0, "1.e+5"),
            (1_000_000.0, "1.e+6"),
            (1_234_567.0, "1234570"),
            (1_234_567_890.0, "1234570000"),
            (12_345_678_901.0, "1.23457e+10"),
            (0.000_012_345_6, "1.23456e-5"),
            (0.000_123_456, ".000123456"),
            (999_999.9, "1.e+6"),
            (120_000.0, "120000"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(general(value), text, "{value}");
        }
        assert_eq!(general3(6.5), "6.5");
        assert_eq!(general3(1234.0), "1230");
    }

    #[test]
    fn sizes_and_durations_are_apaches() {
        assert_eq!(bytes(5119), "5119 B");
        assert_eq!(bytes(10_240), "10.0 kB");
        assert_eq!(bytes(6 << 20), "6.0 MB");
        assert_eq!(bytes(5 << 30), "5.0 GB");
        assert_eq!((kilobytes(10), kilobytes(2048)), ("10 kB".into(), "2.0 MB".into()));
        assert_eq!(duration(0), "");
        assert_eq!(duration(93_721), " 1 day 2 hours 2 minutes 1 second");
    }
}
