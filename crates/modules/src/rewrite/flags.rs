//! Parses the flags of RewriteRule. Flag names and error messages are those of mod_rewrite.c
//! (cmd_rewriterule_setflag).

use super::arguments;
use super::template::Template;
use super::uri::Escaping;
use evenkeel_message::{Status, unquoted};

/// The default bound of rounds for the flag N (`REWRITE_MAX_ROUNDS`).
const ROUNDS: u32 = 32_000;

/// The flags of a rule.
#[derive(Debug, Default)]
pub(super) struct Flags {
    /// B, BCTLS: how groups are escaped, with BNE and BNP. `None` without B and BCTLS.
    pub escaping: Option<Escaping>,
    /// C: if the rule does not match, the rules chained to it are skipped.
    pub chain: bool,
    /// CO: the cookies to set.
    pub cookies: Vec<Template>,
    /// DPI: the path info is discarded.
    pub discard_path_info: bool,
    /// E: the environment variables to set.
    pub env: Vec<Template>,
    /// END: no further rules apply to this request.
    pub end: bool,
    /// H: the handler.
    pub handler: Option<Template>,
    /// L: the last rule of the run.
    pub last: bool,
    /// N: the rules start again, at most this many rounds.
    pub next_round: Option<u32>,
    /// NC: the pattern ignores case.
    pub no_case: bool,
    /// NE: the target of a redirect is not escaped.
    pub no_escape: bool,
    /// NS: the rule does not apply to subrequests.
    pub no_subrequest: bool,
    /// P: the target is requested as a proxy.
    pub proxy: bool,
    /// PT: the result is passed to the next modules as a path.
    pub pass_through: bool,
    /// QSA: the query of the request is appended.
    pub append_query: bool,
    /// QSD: the query of the request is discarded.
    pub discard_query: bool,
    /// QSL: the last question mark of the substitution begins the query.
    pub last_question_mark: bool,
    /// R: an external redirect.
    pub redirect: bool,
    /// The status of R, F and G; 0 if the value of R is an unknown word.
    pub status: Option<u16>,
    /// F, G, or R with a status outside of 3xx: the response has that status and no redirect.
    pub answers: bool,
    /// S: the number of rules to skip.
    pub skip: usize,
    /// T: the media type.
    pub media_type: Option<Template>,
    /// UNC: slashes at the beginning of the path are not merged.
    pub unc: bool,
    /// UnsafeAllow3F.
    pub allow_3f: bool,
    /// UnsafePrefixStat.
    pub prefix_stat: bool,
}

impl Flags {
    /// Parses a flag field in brackets.
    ///
    /// # Errors
    /// A description of the syntax error.
    pub(super) fn parse(field: &str) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut escaping = Escaping::default();
        for (name, value) in arguments::flags(field)? {
            flags.set(&mut escaping, name, value)?;
        }
        if let Some(used) = &mut flags.escaping {
            *used = escaping;
        }
        Ok(flags)
    }

    fn set(&mut self, escaping: &mut Escaping, name: &str, value: &str) -> Result<(), String> {
        match name.to_ascii_lowercase().as_str() {
            "b" | "backrefescaping" => {
                self.escaping.get_or_insert_default();
                if !value.is_empty() {
                    escaping.only = Some(unquoted(value).into());
                }
            }
            "bne" if value.is_empty() => {
                return Err("flag 'BNE' wants a list of characters (i.e. [BNE=...])".into());
            }
            "bne" => escaping.except = Some(unquoted(value).into()),
            "bnp" | "backrefernoplus" => escaping.no_plus = true,
            "bctls" => {
                self.escaping.get_or_insert_default();
                escaping.controls = true;
            }
            "c" | "chain" => self.chain = true,
            "co" | "cookie" => self.cookies.push(Template::compile(value)?),
            "e" | "env" => self.env.push(Template::compile(value)?),
            "end" => self.end = true,
            "f" | "forbidden" => self.answer(Status::FORBIDDEN),
            "g" | "gone" => self.answer(Status::GONE),
            "h" | "handler" => self.handler = Some(Template::compile(value)?),
            "l" | "last" => self.last = true,
            "n" | "next" => {
                let bound = if value.is_empty() { ROUNDS } else { unsigned(value) };
                self.next_round = Some(bound);
            }
            "nc" | "nocase" => self.no_case = true,
            "ne" | "noescape" => self.no_escape = true,
            "ns" | "nosubreq" => self.no_subrequest = true,
            "p" | "proxy" => self.proxy = true,
            "pt" | "passthrough" => self.pass_through = true,
            "qsa" | "qsappend" => self.append_query = true,
            "qsd" | "qsdiscard" => self.discard_query = true,
            "qsl" | "qslast" => self.last_question_mark = true,
            "r" | "redirect" => self.redirect(value)?,
            "s" | "skip" => self.skip = usize::try_from(unsigned(value)).unwrap_or(usize::MAX),
            "t" | "type" => self.media_type = Some(Template::compile(value)?),
            "unc" => self.unc = true,
            "unsafeallow3f" => self.allow_3f = true,
            "unsafeprefixstat" => self.prefix_stat = true,
            "d" | "dpi" | "discardpath" => self.discard_path_info = true,
            // Apache accepts and ignores any other flag that begins with `d`.
            other if other.starts_with('d') => {}
            _ => return Err(format!("unknown flag '{name}'")),
        }
        Ok(())
    }

    fn answer(&mut self, status: Status) {
        (self.status, self.answers) = (Some(status.code()), true);
    }

    fn redirect(&mut self, value: &str) -> Result<(), String> {
        self.redirect = true;
        if value.is_empty() {
            return Ok(());
        }
        self.status = Some(match value.to_ascii_lowercase().as_str() {
            "permanent" => 301,
            "temp" => 302,
            "seeother" => 303,
            number if number.starts_with(|first: char| first.is_ascii_digit()) => {
                let code = u16::try_from(unsigned(number)).unwrap_or(u16::MAX);
                // Apache has no reason phrase for 418 and 425.
                let is_known =
                    |status: &Status| status.reason().is_some() && !matches!(code, 418 | 425);
                let known = Status::new(code).filter(is_known);
                let Some(status) = known else {
                    return Err(format!("invalid HTTP response code '{value}' for flag 'R'"));
                };
                self.answers |= !status.is_redirect();
                code
            }
            _ => 0,
        });
        Ok(())
    }

    /// The status of a redirect; 302 by default.
    pub(super) fn redirect_status(&self) -> u16 {
        self.status.unwrap_or(Status::FOUND.code())
    }
}

/// The number at the beginning of a text, as atoi parses it; 0 if it is negative.
fn unsigned(text: &str) -> u32 {
    u32::try_from(number(text.as_bytes())).unwrap_or_default()
}

/// The number at the beginning of a text, as atoi parses it; 0 if there is none.
pub(super) fn number(text: &[u8]) -> i32 {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0_i64, |value, digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    });
    // Like glibc's atoi: strtol saturates at the bounds of a long, and the result is truncated to
    // the lower 32 bits.
    (if is_negative { -value } else { value }) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(field: &str) -> Flags {
        Flags::parse(field).unwrap()
    }

    fn refused(field: &str) -> String {
        Flags::parse(field).err().unwrap_or_default()
    }

    #[test]
    fn long_and_short_names_mean_the_same() {
        for (short, long) in [
            ("[C,DPI,END,L]", "[chain,DiscardPath,end,LAST]"),
            ("[NC,NE,NS,P,PT]", "[nocase,noescape,nosubreq,proxy,passthrough]"),
            ("[QSA,QSD,QSL,R,G]", "[qsappend,qsdiscard,qslast,redirect,gone]"),
            ("[B,BNP,N,F]", "[backrefescaping,backrefernoplus,next,forbidden]"),
            ("[CO=a:b:c,E=a:b,H=x,T=y/z,S=2]", "[cookie=a:b:c,env=a:b,handler=x,type=y/z,skip=2]"),
        ] {
            assert_eq!(format!("{:?}", parse(short)), format!("{:?}", parse(long)), "{short}");
        }
    }

    #[test]
    fn statuses_are_redirects_or_answers() {
        let status = |field| {
            let flags = parse(field);
            (flags.redirect, flags.redirect_status(), flags.answers)
        };
        assert_eq!(status("[R]"), (true, 302, false));
        assert_eq!(status("[R=permanent]"), (true, 301, false));
        assert_eq!(status("[R=308]"), (true, 308, false));
        assert_eq!(status("[R=404]"), (true, 404, true));
        assert_eq!(status("[R=word]"), (true, 0, false));
        assert_eq!(status("[G]"), (false, 410, true));
        assert_eq!(status("[F]"), (false, 403, true));
    }

    #[test]
    fn bounds_and_lists_are_kept() {
        assert_eq!(parse("[N]").next_round, Some(ROUNDS));
        assert_eq!(parse("[N=12]").next_round, Some(12));
        assert_eq!(parse("[S=-3]").skip, 0);
        let flags = parse("[B= ?,BNE=/]");
        let escaping = flags.escaping.unwrap();
        assert_eq!(
            (escaping.only.as_deref(), escaping.except.as_deref()),
            (Some(&b" ?"[..]), Some(&b"/"[..]))
        );
        assert!(parse("[BNP]").escaping.is_none());
    }

    #[test]
    fn flags_are_refused_in_apaches_words() {
        assert_eq!(refused("[L,XX]"), "unknown flag 'XX'");
        assert_eq!(refused("[]"), "unknown flag ''");
        assert_eq!(refused("[R=999]"), "invalid HTTP response code '999' for flag 'R'");
        assert_eq!(refused("[BNE]"), "flag 'BNE' wants a list of characters (i.e. [BNE=...])");
        assert_eq!(refused("L"), "bad flag delimiters");
        assert_eq!(refused("[dfoo]"), "");
    }

    #[test]
    fn numbers_are_read_as_atoi_does() {
        for (text, expected) in [("12a", 12), (" -3", -3), ("+4", 4), ("x", 0), ("", 0)] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
    }
}
