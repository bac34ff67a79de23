//! Lines of JSON, with an object in each. The names of its members are those that servers and log
//! shippers use, in upper or lower case; docs/lab.md lists them. Members of an object `request` and
//! of its `headers`, as Caddy writes them, are found too.

use super::record::{Misfit, Record};
use super::stamp::Stamp;
use serde_json::{Map, Value};

const LINE: &[&str] = &["request", "request_line", "requestline"];
const METHOD: &[&str] = &["method", "request_method", "requestmethod", "verb"];
const TARGET: &[&str] =
    &["target", "uri", "url", "request_uri", "requesturi", "requesturl", "path", "uri_path"];
const QUERY: &[&str] = &["query", "query_string", "args"];
const HOST: &[&str] =
    &["http_host", "host", "vhost", "virtual_host", "server_name", "servername", "authority"];
const STATUS: &[&str] =
    &["status", "status_code", "statuscode", "response_status", "response", "code"];
const SIZE: &[&str] = &[
    "body_bytes_sent",
    "bytes_sent",
    "body_bytes",
    "bytes",
    "size",
    "response_size",
    "responsesize",
    "length",
];
const TIME: &[&str] = &[
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "time_local",
    "time_iso8601",
    "msec",
    "date",
    "start_time",
];
const AGENT: &[&str] = &["user_agent", "http_user_agent", "useragent", "user-agent", "agent"];
const REFERER: &[&str] = &["referer", "http_referer", "referrer", "http_referrer"];

/// Parses a line.
///
/// # Errors
///
/// It is not an object, or nothing in it says what was requested.
pub(super) fn parse(line: &[u8]) -> Result<Record, Misfit> {
    let object: Map<String, Value> = serde_json::from_slice(line).map_err(|error| Misfit {
        column: error.column().max(1),
        wanted: "an object of JSON".to_owned(),
    })?;
    let members = Members::of(&object);
    let status = members.number(STATUS).and_then(|status| u16::try_from(status).ok());
    let mut record = Record {
        line: members.text(LINE).filter(|line| line.contains(' ')).map(String::into_bytes),
        method: members.text(METHOD).map(String::into_bytes),
        target: members.text(TARGET).map(String::into_bytes),
        host: members.text(HOST).map(String::into_bytes),
        status,
        size: members.number(SIZE),
        stamp: members.find(TIME).and_then(stamp),
        ..Record::default()
    };
    for (name, names) in [("Referer", REFERER), ("User-Agent", AGENT)] {
        if let Some(value) = members.text(names) {
            record.fields.push((name.to_owned(), value.into_bytes()));
        }
    }
    if let (Some(target), Some(query)) = (&mut record.target, members.text(QUERY))
        && !target.contains(&b'?')
    {
        let query = query.trim_start_matches('?');
        target.extend_from_slice(format!("?{query}").as_bytes());
    }
    if record.line.is_none() && record.target.is_none() {
        let wanted = "a member request, uri, url, target or path".to_owned();
        return Err(Misfit { column: 1, wanted });
    }
    Ok(record)
}

/// The objects in which members are searched, inner ones first. Caddy's outer `ts` and `status` are
/// found too.
struct Members<'a>(Vec<&'a Map<String, Value>>);

impl<'a> Members<'a> {
    fn of(object: &'a Map<String, Value>) -> Self {
        let inner =
            |object: &'a Map<String, Value>, name| object.get(name).and_then(Value::as_object);
        let request = inner(object, "request");
        let headers = request.and_then(|request| inner(request, "headers"));
        Self([request, headers, Some(object)].into_iter().flatten().collect())
    }

    /// The first member with one of these names, in the order of the names.
    fn find(&self, names: &[&str]) -> Option<&'a Value> {
        names.iter().find_map(|name| {
            let named = |object: &&'a Map<String, Value>| {
                let mut members = object.iter();
                members.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
            };
            self.0.iter().find_map(named).filter(|value| !value.is_object())
        })
    }

    fn text(&self, names: &[&str]) -> Option<String> {
        let text = match self.find(names)? {
            Value::String(text) => text.clone(),
            Value::Array(values) => values.first()?.as_str()?.to_owned(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some(text).filter(|text| !text.is_empty() && text != "-")
    }

    fn number(&self, names: &[&str]) -> Option<u64> {
        match self.find(names)? {
            Value::Number(number) => number.as_u64(),
            // nginx and Apache write numbers as texts if their format has quotes.
            Value::String(text) if text == "-" => Some(0),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }
}

fn stamp(value: &Value) -> Option<Stamp> {
    match value {
        Value::Number(number) => Stamp::of_number(number.as_f64()?),
        Value::String(text) => Stamp::of_text(text),
        _ => None,
    }
}
