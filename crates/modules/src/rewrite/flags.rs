//! The flags of RewriteRule: a field in brackets goes in, what it asks for comes out. Names and
//! texts of errors are those of mod_rewrite.c (cmd_rewriterule_setflag).

use super::arguments;
use super::template::Template;
use super::uri::Escaping;
use evenkeel_message::{Status, unquoted};

/// The rounds that a rule with the flag N may begin (`REWRITE_MAX_ROUNDS`).
const ROUNDS: u32 = 32_000;

/// What the flags of a rule ask for.
#[derive(Debug, Default)]
pub(super) struct Flags {
    /// B, BCTLS, with BNE and BNP: groups are escaped.
    pub escaping: Option<Escaping>,
    /// C.
    pub chain: bool,
    /// CO: the cookies.
    pub cookies: Vec<Template>,
    /// DPI.
    pub discard_path_info: bool,
    /// E: the variables.
    pub env: Vec<Template>,
    /// END.
    pub end: bool,
    /// H.
    pub handler: Option<Template>,
    /// L.
    pub last: bool,
    /// N, with its bound.
    pub next_round: Option<u32>,
    /// NC.
    pub no_case: bool,
    /// NE.
    pub no_escape: bool,
    /// NS.
    pub no_subrequest: bool,
    /// P.
    pub proxy: bool,
    /// PT.
    pub pass_through: bool,
    /// QSA.
    pub append_query: bool,
    /// QSD.
    pub discard_query: bool,
    /// QSL.
    pub last_question_mark: bool,
    /// R.
    pub redirect: bool,
    /// The status of R, F and G; 0 where R has a word that is none.
    pub status: Option<u16>,
    /// F, G, and R with a status that is no redirect: the status is the answer.
    pub answers: bool,
    /// S.
    pub skip: usize,
    /// T.
    pub media_type: Option<Template>,
    /// UNC.
    pub unc: bool,
    /// UnsafeAllow3F.
    pub allow_3f: bool,
    /// UnsafePrefixStat.
    pub prefix_stat: bool,
}

impl Flags {
    /// Reads a field in brackets.
    ///
    /// # Errors
    /// What is wrong with it.
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
            // Apache takes any other flag with this letter and does nothing.
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
                // Apache has no text for these two.
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

    /// The status of a redirect.
    pub(super) fn redirect_status(&self) -> u16 {
        self.status.unwrap_or(Status::FOUND.code())
    }
}

/// The number at the beginning of a text; 0 where there is none or a negative one (atoi).
fn unsigned(text: &str) -> u32 {
    u32::try_from(number(text.as_bytes())).unwrap_or_default()
}

/// The number at the beginning of a text, within the bounds of an `int` (atoi).
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
    // strtol stops at the bounds of a long, of which atoi keeps the lower half.
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
