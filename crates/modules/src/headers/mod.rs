//! mod_headers: changes to the fields of requests and responses. What Header and RequestHeader
//! say for a request's sections comes in, in order; the changed fields go out. Responses have two
//! lists, as in Apache: fields of success, and fields that are sent always.

mod directives;
mod edit;
mod value;

pub use crate::{NoSettings as Server, NoSettings as Global};
pub use directives::MODULE;
pub use edit::edited;
pub use value::Value;

use crate::core::merge_vary;
use crate::settings::merged;
use crate::{CoreSettings, Merge, RequestContext, ServerState};
use evenkeel_expr::{Condition, MatchError, Pattern};
use evenkeel_message::{
    Fields, Level, Name, Notice, Request, Response, eq_ignore_case, quoted, trim,
};
use std::sync::Arc;

/// The longest value that a line may make of a field, and the most bytes of all fields: lines that
/// take up what others have set may double it each time.
const LONGEST: usize = 64 << 10;
const MOST_BYTES: usize = 1 << 20;

/// The most fields that lines may make of a list: each line looks through all that are there.
const MOST_FIELDS: usize = 1000;

/// The steps that a line takes for each field that is there.
const FIELD_STEPS: usize = 16;

/// What a line does to a field.
#[derive(Debug)]
pub enum Action {
    /// Stands for all that was there.
    Set(Value),
    /// Is set where nothing was there.
    SetIfEmpty(Value),
    /// Is added as a field of its own.
    Add(Value),
    /// Is added to the list of the first.
    Append(Value),
    /// Is added to that list if it is not in it.
    Merge(Value),
    /// The field's value is noted under this name.
    Note(Value),
    /// The field is taken out.
    Unset,
    /// The request's fields whose names match are given back.
    Echo(Pattern),
    /// What the pattern finds is replaced, once or everywhere.
    Edit {
        /// What to find.
        pattern: Pattern,
        /// What to put in its place; `$1` is a group.
        value: Value,
        /// Everywhere.
        all: bool,
    },
}

/// When a line counts.
#[derive(Debug)]
pub enum When {
    /// For every request.
    Always,
    /// For every request, before anything else is done with it.
    Early,
    /// Where a variable of the environment is set, or is not.
    Env {
        /// The variable.
        name: Box<[u8]>,
        /// Whether it must be set.
        set: bool,
    },
    /// Where a condition holds.
    Expr(Condition),
}

/// One Header or RequestHeader line.
#[derive(Debug)]
pub struct Entry {
    /// The field's name.
    pub name: Box<[u8]>,
    /// What happens to it.
    pub action: Action,
    /// When.
    pub when: When,
}

/// Lines in the order in which they count.
pub type List = Vec<Arc<Entry>>;

/// What a section says; an outer section's lines come before an inner one's.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// RequestHeader.
    pub request: List,
    /// Header.
    pub success: List,
    /// Header always.
    pub always: List,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        let Self { request, success, always } = over;
        self.request.extend_from_slice(request);
        self.success.extend_from_slice(success);
        self.always.extend_from_slice(always);
    }
}

/// What a request is served under.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The lines of its sections.
    pub lines: &'a Directory,
    /// The settings of the core.
    pub core: CoreSettings<'a>,
    /// The state of the server, if it is known.
    pub state: Option<&'a dyn ServerState>,
}

/// Carries out the early lines, before the request is looked at (mod_headers.c:
/// ap_headers_early).
pub fn act_early(request: &mut Request, around: Around<'_>) {
    let Directory { request: incoming, success, always } = around.lines;
    if incoming.is_empty() && success.is_empty() && always.is_empty() {
        return;
    }
    change_request(request, around, true);
    for (list, is_always) in [(always, true), (success, false)] {
        for entry in list.iter().filter(|entry| matches!(entry.when, When::Early)) {
            let context = RequestContext::new(request, around.core);
            let mut result = LineResult::default();
            let change = result.resolve(&entry.action, &context, around.state);
            let mut fields = std::mem::take(if is_always {
                &mut request.resource.always
            } else {
                &mut request.resource.fields
            });
            carry_out(entry, &change, &mut fields, request, &mut result.notices);
            *(if is_always {
                &mut request.resource.always
            } else {
                &mut request.resource.fields
            }) = fields;
            result.report(request);
        }
    }
}

/// Changes the request's fields, last of all before it is handled (ap_headers_fixup).
pub fn act_on_request(request: &mut Request, around: Around<'_>) {
    change_request(request, around, false);
}

fn change_request(request: &mut Request, around: Around<'_>, early: bool) {
    for entry in &around.lines.request {
        if matches!(entry.when, When::Early) != early {
            continue;
        }
        let mut result = LineResult::default();
        let context = RequestContext::new(request, around.core);
        if result.counts(&entry.when, &context) && !result.undecided {
            let mut change = result.resolve(&entry.action, &context, around.state);
            // Nobody looks at the fields of a request again before they are used.
            value::unwrap(&mut change);
            let mut fields = std::mem::take(request.fields_mut());
            carry_out(entry, &change, &mut fields, request, &mut result.notices);
            *request.fields_mut() = fields;
        }
        result.report(request);
    }
}

/// Changes the fields of a response that a handler gave (ap_headers_output_filter).
pub fn act_on_response(request: &mut Request, around: Around<'_>, response: &mut Response) {
    for entry in &around.lines.always {
        change_response(entry, request, around, response, true);
    }
    if !around.lines.success.is_empty() {
        state_length(response);
    }
    for entry in &around.lines.success {
        change_response(entry, request, around, response, false);
    }
}

/// Adds Content-Length before the fields that Header lines add, in Apache's order of fields. The
/// connection replaces its value by the length that it sends.
fn state_length(response: &mut Response) {
    if let Some(length) = response.body.length().filter(|length| *length > 0)
        && !response.fields.contains(Name::ContentLength)
    {
        response.fields.set(Name::ContentLength, itoa::Buffer::new().format(length));
    }
}

/// Changes the fields of an error's standard page: only what is said for always counts, and it
/// begins with none of the fields that are there (ap_headers_error_filter,
/// ap_send_error_response).
pub fn act_on_error(request: &mut Request, around: Around<'_>, response: &mut Response) {
    if around.lines.always.is_empty() {
        return;
    }
    let before = std::mem::take(&mut response.always);
    for entry in &around.lines.always {
        change_response(entry, request, around, response, true);
    }
    // Fields of the error itself, such as Location and Allow, follow those of Header lines.
    response.always.extend(&before);
}

fn change_response(
    entry: &Entry,
    request: &mut Request,
    around: Around<'_>,
    response: &mut Response,
    always: bool,
) {
    if matches!(entry.when, When::Early) {
        return;
    }
    let mut result = LineResult::default();
    let context = RequestContext::new(request, around.core).with_response(response);
    if result.counts(&entry.when, &context) {
        let change = result.resolve(&entry.action, &context, around.state);
        if eq_ignore_case(&entry.name, b"Content-Type") {
            change_type(entry, &change, request, response, &mut result.notices);
        } else {
            let fields = if always { &mut response.always } else { &mut response.fields };
            carry_out(entry, &change, fields, request, &mut result.notices);
        }
    }
    merge_vary(&mut response.fields, &result.vary);
    request.notices.append(&mut result.notices);
}

/// The media type is one, whatever list a line is for, and what would add to it is lost
/// (http_filters.c: ap_http_header_filter sets the field last).
fn change_type(
    entry: &Entry,
    change: &[u8],
    request: &mut Request,
    response: &mut Response,
    notices: &mut Vec<Notice>,
) {
    match entry.action {
        Action::Unset => request.resource.content.media_type = None,
        Action::Set(_) | Action::Edit { .. } | Action::Note(_) => {}
        _ if response.fields.contains("Content-Type") => return,
        _ => {}
    }
    carry_out(entry, change, &mut response.fields, request, notices);
}

/// What evaluating a line has to tell.
#[derive(Default)]
struct LineResult {
    notices: Vec<Notice>,
    vary: Fields,
    /// Whether something could not be evaluated, so that the request is not to go on.
    undecided: bool,
}

impl LineResult {
    fn tell(&mut self, number: u16, text: String) {
        self.notices.push(Notice::new("headers", Level::Error, number, text));
    }

    /// Whether the line counts. A line whose condition cannot be evaluated does not count, and a
    /// request whose fields it would change is refused: otherwise a client that makes a pattern
    /// exceed its limit could choose what the request says of that client. A line for a response
    /// counts where a file cannot be read, as in Apache.
    fn counts(&mut self, when: &When, context: &RequestContext<'_>) -> bool {
        match when {
            When::Always | When::Early => true,
            When::Env { name, set } => context.request.resource.env.contains(name) == *set,
            When::Expr(condition) => match context.holds(condition, &mut self.vary) {
                Ok(holds) => holds,
                Err(error) => {
                    self.tell(1501, format!("Failed to evaluate expression ({error}) - ignoring"));
                    self.undecided = true;
                    error.is_of_file()
                }
            },
        }
    }

    /// The text that the line's value stands for; empty where it has none.
    fn resolve(
        &mut self,
        action: &Action,
        context: &RequestContext<'_>,
        state: Option<&dyn ServerState>,
    ) -> Vec<u8> {
        let value = match action {
            Action::Unset | Action::Echo(_) => return Vec::new(),
            Action::Set(value)
            | Action::SetIfEmpty(value)
            | Action::Add(value)
            | Action::Append(value)
            | Action::Merge(value)
            | Action::Note(value)
            | Action::Edit { value, .. } => value,
        };
        value.text(context, state).unwrap_or_else(|error| {
            self.tell(2557, format!("Can't evaluate value expression: {error}"));
            self.undecided = true;
            Vec::new()
        })
    }

    fn report(mut self, request: &mut Request) {
        merge_vary(&mut request.resource.fields, &self.vary);
        request.notices.append(&mut self.notices);
        request.undecided |= self.undecided;
    }
}

/// Does to the fields what the line says, as far as the request may be made to pay for it. What a
/// pattern cannot decide leaves the request undecided.
fn carry_out(
    entry: &Entry,
    value: &[u8],
    fields: &mut Fields,
    request: &mut Request,
    notices: &mut Vec<Notice>,
) {
    if request.allowance.is_spent() {
        return;
    }
    let name = &entry.name;
    let old: usize = fields.all(name).map(<[u8]>::len).sum();
    let adds = || match &entry.action {
        Action::Add(_) | Action::Echo(_) => true,
        Action::Set(_) | Action::SetIfEmpty(_) | Action::Append(_) | Action::Merge(_) => {
            !fields.contains(name)
        }
        Action::Note(_) | Action::Unset | Action::Edit { .. } => false,
    };
    if fields.len() >= MOST_FIELDS && adds() {
        let text = format!("Header {} would be one of more than {MOST_FIELDS}", quoted(name));
        notices.push(Notice::own("headers", Level::Error, text));
        // Nothing is sent of which a part would be missing.
        let _nothing = request.allowance.spend(u64::MAX);
        return;
    }
    // Every field's name is compared, and a value that is changed is looked through and copied.
    let steps = FIELD_STEPS * fields.len() + 2 * (old + value.len());
    if !request.allowance.spend(steps as u64) {
        return;
    }
    if old + value.len() > LONGEST || fields.bytes() + value.len() > MOST_BYTES {
        let text = format!("Header {} would grow beyond all bounds", quoted(name));
        notices.push(Notice::own("headers", Level::Error, text));
        return;
    }
    match &entry.action {
        Action::Set(_) => fields.set(name, value),
        Action::SetIfEmpty(_) if fields.contains(name) => {}
        Action::SetIfEmpty(_) | Action::Add(_) => fields.add(name, value),
        Action::Append(_) => fields.merge(name, value),
        Action::Merge(_) if fields.first(name).is_some_and(|list| lists(list, value)) => {}
        Action::Merge(_) => fields.merge(name, value),
        Action::Note(_) => {
            if let Some(noted) = fields.first(name) {
                request.resource.notes.set(value, noted);
            }
        }
        Action::Unset => {
            fields.remove(name);
        }
        Action::Echo(pattern) => {
            if let Err(error) = echo(pattern, request, fields) {
                request.undecided = true;
                notices.push(Notice::own("headers", Level::Error, error.to_string()));
            }
        }
        Action::Edit { pattern, all, .. } => {
            let old: Vec<Vec<u8>> = fields.all(name).map(<[u8]>::to_vec).collect();
            fields.remove(name);
            for text in old {
                let new = edited(&request.allowance, pattern, value, *all, &text);
                fields.add(name, new.as_deref().unwrap_or(&text));
                if let Err(error) = new {
                    request.undecided = true;
                    let text = format!("Regular expression replacement failed ({error})");
                    notices.push(Notice::new("headers", Level::Crit, 1504, text));
                }
            }
        }
    }
}

/// Gives the request's fields back whose names match.
fn echo(pattern: &Pattern, request: &Request, fields: &mut Fields) -> Result<(), MatchError> {
    for (name, value) in request.fields().iter() {
        if pattern.matches_within(&request.allowance, name)? {
            fields.add(name, value);
        }
    }
    Ok(())
}

/// Whether a list has this element; a comma in quotes does not part elements.
fn lists(list: &[u8], wanted: &[u8]) -> bool {
    let mut quoted = false;
    list.split(|byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    })
    .any(|element| trim(element) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, core_settings};
    use evenkeel_message::{Peer, RequestHead, Status};

    fn directory(lines: &[&str]) -> Directory {
        lines.iter().fold(Directory::default(), |outer, line| {
            Directory::merge(&outer, &apply(MODULE, line).unwrap().directory.headers)
        })
    }

    fn around(lines: &Directory) -> Around<'_> {
        Around { lines, core: core_settings(), state: None }
    }

    fn request() -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        let mut request = Request::new(RequestHead::default(), peer, 0);
        request.fields_mut().add("X-In", "in");
        request.fields_mut().add("X-Echo", "e");
        request.resource.env.set("SET", "1");
        request
    }

    fn shown(fields: &Fields) -> String {
        let line = |(name, value): (&[u8], &[u8])| {
            format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        fields.iter().map(line).collect::<Vec<_>>().join("|")
    }

    fn respond(lines: &[&str]) -> Response {
        let mut response = Response::new(Status::OK);
        response.fields.add("ETag", "\"e\"");
        response.fields.add("Content-Type", "text/plain");
        let plan = directory(lines);
        let around = around(&plan);
        act_on_response(&mut request(), around, &mut response);
        response
    }

    #[test]
    fn actions_change_fields_in_order() {
        let table: &[(&[&str], &str)] = &[
            (&["Header set A 1", "Header set A 2"], "A=2"),
            (&["Header add A 1", "Header add A 2"], "A=1|A=2"),
            (&["Header append A 1", "Header append A 2"], "A=1, 2"),
            (&["Header merge A 1", "Header merge A 1", "Header merge A 2"], "A=1, 2"),
            (
                &["Header set A '\"1,2\",3'", "Header merge A 2", "Header merge A 3"],
                "A=\"1,2\",3, 2",
            ),
            (&["Header set A 1", "Header unset A"], ""),
            (&["Header setifempty A 1", "Header setifempty A 2"], "A=1"),
            (&["Header set A a-b-c", "Header edit* A - +"], "A=a+b+c"),
            (&["Header add A x1", "Header add A x2", "Header edit A x y"], "A=y1|A=y2"),
            (&["Header echo ^x-echo$"], ""),
            (&["Header echo ^X-Echo$"], "X-Echo=e"),
            (&["Header set A 1 env=SET", "Header set B 1 env=!SET"], "A=1"),
            (&["Header set A 1 env=NONE", "Header set B 1 env=!NONE"], "B=1"),
            (&["Header set A 1 early"], ""),
            (
                &["Header set A 1", "Header note A noted", "Header set B expr=%{note:noted}"],
                "A=1|B=1",
            ),
            (&["Header set A 1 \"expr=%{HTTP:X-In} == 'in'\""], "A=1|Vary=X-In"),
            (&["Header set A 1 \"expr=%{REQUEST_STATUS} == 404\""], ""),
        ];
        for (lines, expected) in table {
            let mut response = respond(lines);
            response.fields.remove("ETag");
            response.fields.remove("Content-Type");
            assert_eq!(shown(&response.fields), *expected, "{lines:?}");
        }
    }

    #[test]
    fn always_has_a_list_of_its_own() {
        let response = respond(&["Header always set A 1", "Header set A 2", "Header unset ETag"]);
        assert_eq!(shown(&response.always), "A=1");
        assert_eq!(shown(&response.fields), "Content-Type=text/plain|A=2");
    }

    #[test]
    fn the_media_type_is_one() {
        let type_of = |line| respond(&[line]).fields.joined(b"Content-Type");
        assert_eq!(type_of("Header always set Content-Type a/b"), Some(b"a/b".to_vec()));
        assert_eq!(type_of("Header append Content-Type a/b"), Some(b"text/plain".to_vec()));
        assert_eq!(type_of("Header edit Content-Type plain html"), Some(b"text/html".to_vec()));
        assert_eq!(type_of("Header always unset content-type"), None);
    }

    #[test]
    fn an_error_has_what_is_said_for_always() {
        let mut response = Response::new(Status::FORBIDDEN);
        response.always.add("A", "0");
        let lines = ["Header always append A 1", "Header set B 1"];
        let plan = directory(&lines);
        let around = around(&plan);
        act_on_error(&mut request(), around, &mut response);
        // The fields of Header lines stand before those of the answer, as in Apache.
        assert_eq!(shown(&response.always), "A=1|A=0");
    }

    /// Each line would double what the line before has made.
    #[test]
    fn values_do_not_grow_beyond_all_bounds() {
        let doubled = ["Header note A n", "Header append A expr=%{note:n}%{note:n}"];
        let lines = [vec!["Header set A 0123456789"], doubled.repeat(40)].concat();
        let response = respond(&lines);
        let length = response.fields.first("A").map_or(0, <[u8]>::len);
        assert!((LONGEST / 4..=LONGEST).contains(&length), "{length}");
    }

    /// What many lines take together, a request pays for.
    #[test]
    fn lines_count_as_steps() {
        let mut request = request();
        let plan = directory(&["Header set A 1"]);
        let around = around(&plan);
        let mut response = Response::new(Status::OK);
        let left = request.allowance.left();
        act_on_response(&mut request, around, &mut response);
        assert!(request.allowance.left() < left && response.fields.contains("A"));
        assert!(!request.allowance.spend(u64::MAX));
        response.fields.clear();
        act_on_response(&mut request, around, &mut response);
        assert!(request.allowance.is_spent() && response.fields.is_empty());
    }

    #[test]
    fn more_fields_than_anybody_reads_are_no_answer() {
        let set: Vec<String> = (0..=MOST_FIELDS).map(|n| format!("Header set X-{n} 1")).collect();
        let mut set: Vec<&str> = set.iter().map(String::as_str).collect();
        let last = std::mem::replace(&mut set[MOST_FIELDS], "Header set X-0 2");
        let mut request = request();
        let mut respond = |lines: &[&str]| {
            let (plan, mut response) = (directory(lines), Response::new(Status::OK));
            let around = around(&plan);
            act_on_response(&mut request, around, &mut response);
            (response.fields.len(), request.allowance.is_spent(), request.notices.len())
        };
        assert_eq!(respond(&set), (MOST_FIELDS, false, 0));
        set.push(last);
        assert_eq!(respond(&set), (MOST_FIELDS, true, 1));
    }

    #[test]
    fn a_line_whose_pattern_gives_up_leaves_the_request_undecided() {
        let long = "a".repeat(40) + "b";
        for (line, echoes) in [("Header echo ^(a+)+$", true), ("Header edit A ^(a+)+$ x", false)] {
            let mut request = request();
            if echoes {
                request.fields_mut().add(&long, "v");
            }
            let plan = directory(&[line]);
            let around = around(&plan);
            let mut response = Response::new(Status::OK);
            response.fields.add("A", "aaaa");
            act_on_response(&mut request, around, &mut response);
            assert_eq!(request.undecided, echoes, "{line}");
            response.fields.set("A", &long);
            act_on_response(&mut request, around, &mut response);
            assert!(request.undecided, "{line}");
            assert!(request.notices[0].text.contains("gave up"), "{:?}", request.notices);
        }
    }

    /// Who can make a condition give up must not choose what is said of him.
    #[test]
    fn a_line_whose_condition_gives_up_does_not_count_and_ends_the_request() {
        let line = "RequestHeader set X-Trusted yes \"expr=%{HTTP:X} =~ /^(a+)+$/\"";
        let plan = directory(&[line]);
        let around = around(&plan);
        for (value, trusted) in [("aaaa", true), ("b", false)] {
            let mut request = request();
            request.fields_mut().add("X", value);
            act_on_request(&mut request, around);
            let seen = request.fields().contains("X-Trusted");
            assert_eq!((seen, request.undecided), (trusted, false), "{value}");
        }
        let mut request = request();
        request.fields_mut().add("X", "a".repeat(40) + "b");
        act_on_request(&mut request, around);
        assert!(request.undecided && !request.fields().contains("X-Trusted"));
    }

    #[test]
    fn requests_change_early_and_late() {
        let lines = [
            "RequestHeader set X-Early 1 early",
            "RequestHeader edit X-In i o",
            "RequestHeader unset X-Echo",
            "Header set X-Out 1 early",
            "Header always add X-All 1 early",
        ];
        let (mut request, plan) = (request(), directory(&lines));
        let around = around(&plan);
        act_early(&mut request, around);
        assert_eq!(shown(request.fields()), "X-In=in|X-Echo=e|X-Early=1");
        assert_eq!(
            (shown(&request.resource.fields), shown(&request.resource.always)),
            ("X-Out=1".into(), "X-All=1".into())
        );
        act_on_request(&mut request, around);
        assert_eq!(shown(request.fields()), "X-Early=1|X-In=on");
    }
}
