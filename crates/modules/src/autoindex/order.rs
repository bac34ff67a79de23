//! The order of a listing's rows: two rows go in, which comes first goes out (mod_autoindex.c:
//! dsortf; APR's apr_strnatcmp for version sort).

use super::entry::Row;
use super::options::Flags;
use super::settings::{Key, Order};
use std::cmp::Ordering;

/// Sorts rows; none of them is the parent's. Rows are large, so that their references are sorted.
pub(super) fn sort(rows: &mut [&Row<'_>], order: Order, flags: Flags) {
    let is_by_bytes = order == Order::default()
        && !flags.has(Flags::VERSION_SORT | Flags::IGNORE_CASE | Flags::FOLDERS_FIRST);
    if is_by_bytes {
        return rows.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    rows.sort_by(|a, b| compare(a, b, order, flags));
}

/// Folders first where that is wanted, whatever the direction.
fn compare(a: &Row<'_>, b: &Row<'_>, order: Order, flags: Flags) -> Ordering {
    b.leads.cmp(&a.leads).then_with(|| {
        let (a, b) = if order.descending { (b, a) } else { (a, b) };
        by_key(a, b, order.key, flags).then_with(|| by_name(&a.name, &b.name, flags))
    })
}

fn by_key(a: &Row<'_>, b: &Row<'_>, key: Key, flags: Flags) -> Ordering {
    match key {
        Key::Name => Ordering::Equal,
        Key::Modified => a.modified_us.cmp(&b.modified_us),
        Key::Size => a.size.cmp(&b.size),
        Key::Description => {
            let (a, b) = (a.description.as_deref(), b.description.as_deref());
            let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
            if flags.has(Flags::VERSION_SORT) { natural(a, b, false) } else { a.cmp(b) }
        }
    }
}

/// Names that are alike but for their case still have one order.
fn by_name(a: &[u8], b: &[u8], flags: Flags) -> Ordering {
    let (versions, ignore_case) = (flags.has(Flags::VERSION_SORT), flags.has(Flags::IGNORE_CASE));
    let when = |wanted: bool, order: &dyn Fn() -> Ordering| {
        if wanted { order() } else { Ordering::Equal }
    };
    let by_lower = |a: &[u8], b: &[u8]| {
        let lower = |byte: &u8| byte.to_ascii_lowercase();
        a.iter().map(lower).cmp(b.iter().map(lower))
    };
    when(versions && ignore_case, &|| natural(a, b, true))
        .then_with(|| when(versions, &|| natural(a, b, false)))
        .then_with(|| when(ignore_case, &|| by_lower(a, b)))
        .then_with(|| a.cmp(b))
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Compares texts so that runs of digits count as numbers, and as fractions where either begins
/// with 0. Spaces do not count. Other bytes compare as signed, as APR's do.
fn natural(a: &[u8], b: &[u8], ignore_case: bool) -> Ordering {
    let skip = |text: &'_ [u8], at: usize| {
        let spaces = text.get(at..).unwrap_or_default().iter();
        at + spaces.take_while(|byte| is_space(**byte)).count()
    };
    let (mut i, mut j) = (0, 0);
    loop {
        (i, j) = (skip(a, i), skip(b, j));
        let (rest_a, rest_b) = (a.get(i..).unwrap_or_default(), b.get(j..).unwrap_or_default());
        let (first_a, first_b) = (rest_a.first().copied(), rest_b.first().copied());
        let (byte_a, byte_b) = (first_a.unwrap_or(0), first_b.unwrap_or(0));
        if byte_a.is_ascii_digit() && byte_b.is_ascii_digit() {
            let as_fraction = byte_a == b'0' || byte_b == b'0';
            let order =
                if as_fraction { by_fraction(rest_a, rest_b) } else { by_number(rest_a, rest_b) };
            if order != Ordering::Equal {
                return order;
            }
        }
        if first_a.is_none() && first_b.is_none() {
            return Ordering::Equal;
        }
        let value = |byte: u8| {
            let byte = if ignore_case { byte.to_ascii_uppercase() } else { byte };
            byte.cast_signed()
        };
        match value(byte_a).cmp(&value(byte_b)) {
            Ordering::Equal => (i, j) = (i + 1, j + 1),
            unequal => return unequal,
        }
    }
}

fn digits(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// The longer run is the greater number; among equals the first difference counts.
fn by_number(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (digits(a), digits(b));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Digit by digit from the left; a run that ends is the smaller.
fn by_fraction(a: &[u8], b: &[u8]) -> Ordering {
    digits(a).cmp(digits(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, size: i64, leads: bool) -> Row<'static> {
        Row { name: name.into(), size, leads, ..Row::default() }
    }

    /// The names of rows in their order.
    fn in_order(rows: &[Row<'_>], order: Order, flags: Flags) -> Vec<String> {
        let mut rows: Vec<&Row<'_>> = rows.iter().collect();
        sort(&mut rows, order, flags);
        rows.into_iter().map(|row| String::from_utf8(row.name.clone()).unwrap()).collect()
    }

    fn sorted(names: &[&str], flags: Flags) -> Vec<String> {
        let rows: Vec<Row<'_>> = names.iter().map(|name| row(name, 0, false)).collect();
        in_order(&rows, Order::default(), flags)
    }

    #[test]
    fn names_by_bytes_case_and_versions() {
        assert_eq!(sorted(&["b", "a", "B", "é"], Flags::EMPTY), ["B", "a", "b", "é"]);
        assert_eq!(sorted(&["b", "C", "a", "B"], Flags::IGNORE_CASE), ["a", "B", "b", "C"]);
        let versions = ["f10", "f9", "f1.05", "f1.1", "f1.5", "f 2", "é"];
        let wanted = ["é", "f1.05", "f1.1", "f1.5", "f 2", "f9", "f10"];
        assert_eq!(sorted(&versions, Flags::VERSION_SORT), wanted);
        let both = Flags::VERSION_SORT | Flags::IGNORE_CASE;
        assert_eq!(sorted(&["F2", "f10", "f1"], both), ["f1", "F2", "f10"]);
    }

    #[test]
    fn keys_directions_and_folders() {
        let mut rows = vec![row("a", 2, false), row("b", 1, false), row("z/", -1, true)];
        rows.push(row("c", 1, false));
        let order = |descending| Order { key: Key::Size, descending };
        assert_eq!(in_order(&rows, order(false), Flags::EMPTY), ["z/", "b", "c", "a"]);
        assert_eq!(in_order(&rows, order(true), Flags::EMPTY), ["z/", "a", "c", "b"]);
        let by_name = Order::default();
        assert_eq!(in_order(&rows, by_name, Flags::FOLDERS_FIRST), ["z/", "a", "b", "c"]);
    }

    #[test]
    fn descriptions_compare_as_texts_or_versions() {
        let described = |name: &str, text: &str| Row {
            description: (!text.is_empty()).then(|| text.as_bytes().to_vec().into()),
            ..row(name, 0, false)
        };
        let rows = [described("a", "v10"), described("b", "v9"), described("c", "")];
        let order = Order { key: Key::Description, descending: false };
        assert_eq!(in_order(&rows, order, Flags::EMPTY), ["c", "a", "b"]);
        assert_eq!(in_order(&rows, order, Flags::VERSION_SORT), ["c", "b", "a"]);
    }
}
