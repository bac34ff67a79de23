//! Parses Cache-Control of requests and responses (RFC 9111, section 5.2; RFC 5861).

use evenkeel_message::{Fields, Name, trim};

/// The directives of a message. A directive with field names (`private="Set-Cookie"`) counts as if
/// it had none, which RFC 9111 permits and which stores less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Whether the message has any directive.
    pub is_present: bool,
    /// A stored response is not used without validation.
    pub no_cache: bool,
    /// Nothing of the exchange is stored.
    pub no_store: bool,
    /// A shared cache does not store the response.
    pub private: bool,
    /// The response may be stored though it would not be otherwise.
    pub public: bool,
    /// A stale response is not used without validation.
    pub must_revalidate: bool,
    /// The same, for shared caches.
    pub proxy_revalidate: bool,
    /// The client wants a stored response or none.
    pub only_if_cached: bool,
    /// The lifetime in seconds, or the age that the client accepts.
    pub max_age: Option<u64>,
    /// The lifetime in seconds in shared caches.
    pub s_maxage: Option<u64>,
    /// How many seconds a response may be stale for the client; `u64::MAX` if it names no number.
    pub max_stale: Option<u64>,
    /// How many seconds longer the response has to be fresh.
    pub min_fresh: Option<u64>,
    /// For how many seconds a stale response is used while it is being validated.
    pub stale_while_revalidate: Option<u64>,
    /// For how many seconds a stale response is used if its server fails.
    pub stale_if_error: Option<u64>,
}

/// The largest number of seconds (RFC 9111, section 1.2.2).
pub const MOST_SECONDS: u64 = 1 << 31;

impl CacheControl {
    /// The directives of a request. Pragma counts beside Cache-Control too, as in Apache
    /// (cache_util.c: `ap_cache_control`), although RFC 9111, section 5.4, lets it be ignored.
    #[must_use]
    pub fn of_request(fields: &Fields) -> Self {
        Self::of(fields)
    }

    /// The directives of a response. Pragma counts as in a request.
    #[must_use]
    pub fn of_response(fields: &Fields) -> Self {
        Self::of(fields)
    }

    fn of(fields: &Fields) -> Self {
        let mut control = Self::default();
        for value in fields.all(Name::CacheControl) {
            let mut rest = value;
            while !rest.is_empty() {
                let (item, after) = next_item(rest);
                rest = after;
                control.add(item);
            }
        }
        let is_no_cache = |item: &[u8]| item.eq_ignore_ascii_case(b"no-cache");
        let words = fields.all("Pragma").flat_map(words);
        control.no_cache |= words.into_iter().any(is_no_cache);
        control
    }

    fn add(&mut self, item: &[u8]) {
        let (name, value) = match item.iter().position(|byte| *byte == b'=') {
            Some(at) => (item.get(..at).unwrap_or_default(), item.get(at + 1..)),
            None => (item, None),
        };
        let name = trim(name);
        if name.is_empty() {
            return;
        }
        self.is_present = true;
        match name.to_ascii_lowercase().as_slice() {
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => least(&mut self.max_age, seconds(value)),
            b"s-maxage" => least(&mut self.s_maxage, seconds(value)),
            b"max-stale" => {
                let most = if value.is_none() { u64::MAX } else { seconds(value) };
                least(&mut self.max_stale, most);
            }
            b"min-fresh" => self.min_fresh = Some(seconds(value)),
            b"stale-while-revalidate" => least(&mut self.stale_while_revalidate, seconds(value)),
            b"stale-if-error" => least(&mut self.stale_if_error, seconds(value)),
            _ => {}
        }
    }

    /// Whether a stale response may be used at all (RFC 9111, section 4.2.4).
    #[must_use]
    pub fn lets_stale_be_used(&self) -> bool {
        !self.must_revalidate && !self.proxy_revalidate && !self.no_cache
    }
}

/// The more restrictive of two numbers where a directive is repeated (RFC 9111, section 4.2.1).
fn least(known: &mut Option<u64>, value: u64) {
    *known = Some(known.map_or(value, |known| known.min(value)));
}

/// The words of a list whose members blanks separate too, as in Apache.
pub(crate) fn words(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b',' | b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// The first item of a list, and what follows its end. An item ends at a comma, and at a semicolon
/// or a blank too, which many applications write in its place: `private max-age=60` is private.
/// Apache splits at blanks (cache_util.c: `ap_cache_control`). Blanks around `=` and what is in
/// quoted strings end nothing.
fn next_item(list: &[u8]) -> (&[u8], &[u8]) {
    let (mut quoted, mut escaped) = (false, false);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    for (at, byte) in list.iter().enumerate() {
        let (before, rest) = list.split_at_checked(at).unwrap_or_default();
        let is_end = match byte {
            _ if escaped => {
                escaped = false;
                false
            }
            b'\\' if quoted => {
                escaped = true;
                false
            }
            b'"' => {
                quoted = !quoted;
                false
            }
            b',' | b';' => !quoted,
            b' ' | b'\t' => {
                let next = rest.iter().find(|byte| !is_blank(byte));
                let last = before.iter().rfind(|byte| !is_blank(byte));
                !quoted && next != Some(&b'=') && !matches!(last, Some(b'=') | None)
            }
            _ => false,
        };
        if is_end {
            return (before, rest.get(1..).unwrap_or_default());
        }
    }
    (list, &[])
}

/// A number of seconds. What is none counts as 0: a lifetime that cannot be read is over (RFC 9111,
/// section 4.2.1). Both forms of an argument are accepted (section 5.2).
fn seconds(value: Option<&[u8]>) -> u64 {
    let text = trim(value.unwrap_or_default());
    let text = text.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(text);
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    text.iter().fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0')).min(MOST_SECONDS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(lines: &[(&str, &str)]) -> CacheControl {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.add(*name, value));
        CacheControl::of_response(&fields)
    }

    #[test]
    fn directives_are_read_from_all_lines_in_any_case() {
        let read = control(&[
            ("Cache-Control", "Max-Age=60 , PUBLIC"),
            ("Cache-Control", "s-maxage=\"7\", must-revalidate,,x=\"a, no-store\""),
        ]);
        assert_eq!(
            read,
            CacheControl {
                is_present: true,
                public: true,
                must_revalidate: true,
                max_age: Some(60),
                s_maxage: Some(7),
                ..CacheControl::default()
            }
        );
    }

    #[test]
    fn field_names_do_not_weaken_a_directive() {
        let read = control(&[("Cache-Control", "private=\"Set-Cookie, X\", no-cache=\"Y\"")]);
        assert!(read.private && read.no_cache && read.max_age.is_none());
    }

    #[test]
    fn a_lifetime_that_cannot_be_read_is_over_and_the_shorter_of_two_counts() {
        for (text, seconds) in [
            ("max-age=x", 0),
            ("max-age", 0),
            ("max-age=-1", 0),
            ("max-age=1.5", 0),
            ("max-age=5, max-age=3", 3),
            ("max-age=99999999999999999999999", MOST_SECONDS),
        ] {
            assert_eq!(control(&[("Cache-Control", text)]).max_age, Some(seconds), "{text}");
        }
    }

    #[test]
    fn max_stale_without_a_number_is_any() {
        assert_eq!(control(&[("Cache-Control", "max-stale")]).max_stale, Some(u64::MAX));
        assert_eq!(control(&[("Cache-Control", "max-stale=4")]).max_stale, Some(4));
    }

    #[test]
    fn pragma_counts_beside_cache_control_too() {
        for pragma in ["x, No-Cache", "no-cache foo"] {
            assert!(control(&[("Pragma", pragma)]).no_cache, "{pragma}");
        }
        assert!(control(&[("Pragma", "no-cache"), ("Cache-Control", "max-age=1")]).no_cache);
        assert!(!control(&[("Pragma", "x"), ("Cache-Control", "max-age=1")]).no_cache);
    }

    #[test]
    fn blanks_and_semicolons_end_a_directive() {
        for text in [
            "private max-age=600",
            "private\tmax-age=60",
            "max-age=60, x=y private",
            "public private, max-age=60",
            " private ; max-age=60",
            "max-age = 60 private",
            "x=\"a b\" private",
        ] {
            assert!(control(&[("Cache-Control", text)]).private, "{text}");
        }
        assert_eq!(control(&[("Cache-Control", "max-age = 60")]).max_age, Some(60));
        let both = control(&[("Cache-Control", "no-store no-cache must-revalidate")]);
        assert!(both.no_store && both.no_cache && both.must_revalidate);
        assert!(!control(&[("Cache-Control", "x=\"a private\"")]).private);
    }
}
