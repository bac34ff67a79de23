//! Directives that are accepted and do nothing, each with its reason, and those that are refused.

use super::{UPGRADE, at_least, flag, number};
use crate::core::parse_interval;
use crate::{Directive, DirectiveResult, Scope, Where, argument, directive};
use evenkeel_config::{Call, Notice, Shape};

#[rustfmt::skip]
pub(super) const DIRECTIVES: &[Directive] = &[
    directive("H2MinWorkers", Where::SERVER, Shape::One, "", "minimum number of worker threads per child", workers),
    directive("H2MaxWorkers", Where::SERVER, Shape::One, "", "maximum number of worker threads per child", workers),
    directive("H2MaxWorkerIdleSeconds", Where::SERVER, Shape::One, "600", "maximum number of idle seconds before a worker shuts down", idle_seconds),
    directive("H2StreamMaxMemSize", Where::SERVER, Shape::One, "32768", "maximum number of bytes buffered in memory for a stream", stream_memory),
    directive("H2SerializeHeaders", Where::SERVER, Shape::One, "off", "disabled, this directive has no longer an effect.", serialize),
    directive("H2ModernTLSOnly", Where::SERVER, Shape::One, "on", "off to not impose RFC 7540 restrictions on TLS", silent_flag),
    directive("H2SessionExtraFiles", Where::SERVER, Shape::One, "", "number of extra file a session might keep open (obsolete)", extra_files),
    directive("H2TLSWarmUpSize", Where::SERVER, Shape::One, "1048576", "number of bytes on TLS connection before doing max writes", records),
    directive("H2TLSCoolDownSecs", Where::SERVER, Shape::One, "0", "seconds of idle time on TLS before shrinking writes", records),
    directive("H2Push", UPGRADE, Shape::One, "off", "off to disable HTTP/2 server push", push),
    directive("H2PushPriority", Where::SERVER, Shape::TwoOrThree, "", "define priority of PUSHed resources per content type", no_push),
    directive("H2PushDiarySize", Where::SERVER, Shape::One, "256", "size of push diary", no_push),
    directive("H2CopyFiles", Where::FILE_INFO, Shape::One, "off", "on to perform copy of file data", copy_files),
    directive("H2Padding", Where::SERVER, Shape::One, "0", "set payload padding", padding),
    directive("H2OutputBuffering", Where::SERVER, Shape::One, "on", "set stream output buffer on/off", silent_flag),
    directive("H2ProxyRequests", Where::FILE_INFO, Shape::One, "off", "Enables forward proxy requests via HTTP/2", proxy_requests),
    directive("H2WebSockets", Where::SERVER, Shape::One, "off", "off to disable WebSockets over HTTP/2", web_sockets),
];

/// Warns that a directive has no effect, at its place.
pub(super) fn remark(call: &Call<'_>, text: &str) {
    let place = call.position;
    let text = format!("{}: {text} (line {} of {})", call.name, place.line, place.file);
    call.notice(Notice { number: None, ..Notice::warn("http2", 0, text) });
}

fn silent_flag(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    flag(call).map(|_| ())
}

fn workers(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    at_least(call, 1, "value must be > 0")?;
    remark(call, "streams have no workers of their own");
    Ok(())
}

fn idle_seconds(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    parse_interval(argument(call, 0), 1_000_000).ok_or("Invalid idle limit value")?;
    remark(call, "streams have no workers of their own");
    Ok(())
}

fn stream_memory(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    at_least(call, 1024, "value must be >= 1024")?;
    remark(call, "a stream copies nothing that its client does not take");
    Ok(())
}

fn serialize(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if argument(call, 0).eq_ignore_ascii_case("on") {
        let text = format!(
            "{}: this feature has been disabled and the directive to enable it is ignored.",
            call.name
        );
        call.notice(Notice::warn("http2", 10307, text));
    }
    Ok(())
}

fn extra_files(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    remark(call, "it is obsolete and has no effect in Apache either");
    Ok(())
}

fn records(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    number(call);
    remark(call, "records of TLS have one size from the beginning");
    Ok(())
}

fn push(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if flag(call)? {
        remark(call, NO_PUSH);
    }
    Ok(())
}

const NO_PUSH: &str = "there is no server push, which browsers have given up";

fn no_push(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    remark(call, NO_PUSH);
    Ok(())
}

fn copy_files(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if flag(call)? {
        remark(call, "files are read when they are sent");
    }
    Ok(())
}

fn padding(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match at_least(call, 0, "number of bits must be >= 0")? {
        0 => Ok(()),
        1..=8 => {
            remark(call, "frames are not padded");
            Ok(())
        }
        _ => Err("number of bits must be <= 8".to_owned()),
    }
}

fn proxy_requests(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match flag(call)? {
        true => Err("H2ProxyRequests on: there is no forward proxy".to_owned()),
        false => Ok(()),
    }
}

fn web_sockets(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    if flag(call)? {
        remark(call, "there are no WebSockets over HTTP/2; clients take HTTP/1.1 for them");
    }
    Ok(())
}
