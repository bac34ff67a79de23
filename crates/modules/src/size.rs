//! Sizes of files as listings and pages show them.

/// A size in bytes in four characters (apr_strfsize); `-` for none.
pub(crate) fn abbreviated(bytes: i64) -> String {
    /// From here on a number takes a unit: so that three digits do, rounded.
    const LIMIT: i64 = 973;
    if bytes < 0 {
        return "  - ".to_owned();
    }
    if bytes < LIMIT {
        return format!("{bytes:3} ");
    }
    let (mut whole, mut rest) = (bytes, 0);
    for unit in ['K', 'M', 'G', 'T', 'P', 'E'] {
        (whole, rest) = (whole >> 10, whole & 1023);
        if whole >= LIMIT {
            continue;
        }
        if whole < 9 || (whole == 9 && rest < LIMIT) {
            let tenths = (rest * 5 + 256) / 512;
            return match tenths {
                10.. => format!("{}.0{unit}", whole + 1),
                tenths => format!("{whole}.{tenths}{unit}"),
            };
        }
        return format!("{:3}{unit}", if rest >= 512 { whole + 1 } else { whole });
    }
    format!("{whole}+{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_four_characters() {
        let sizes = [-1, 0, 972, 973, 1024, 10_000, 10_188, 10_240, 996_146, 1_023_000, 5 << 30];
        let texts = sizes.map(abbreviated);
        let wanted = [
            "  - ", "  0 ", "972 ", "1.0K", "1.0K", "9.8K", "9.9K", " 10K", "973K", "1.0M", "5.0G",
        ];
        assert_eq!(texts, wanted);
        assert_eq!(abbreviated(i64::MAX), "8.0E");
    }
}
