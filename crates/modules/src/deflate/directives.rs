//! The directives of mod_deflate.

use super::{DEFLATE, INFLATE, INPUT};
use crate::compression::AlterTag;
use crate::{
    Active, Directive, DirectiveResult, Module, Provided, Scope, Where, argument, directive,
};
use evenkeel_config::{Call, Shape};
use std::num::IntErrorKind;
use std::ops::RangeInclusive;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("DeflateFilterNote", Where::SERVER, Shape::OneOrTwo, "", "Set a note to report on compression ratio", filter_note),
    directive("DeflateWindowSize", Where::SERVER, Shape::One, "15", "Set the Deflate window size (1-15)", window_size),
    directive("DeflateBufferSize", Where::SERVER, Shape::One, "8096", "Set the Deflate Buffer Size", buffer_size),
    directive("DeflateMemLevel", Where::SERVER, Shape::One, "9", "Set the Deflate Memory Level (1-9)", mem_level),
    directive("DeflateCompressionLevel", Where::SERVER, Shape::One, "6", "Set the Deflate Compression Level (1-9)", compression_level),
    directive("DeflateInflateLimitRequestBody", Where::ANYWHERE, Shape::One, "", "Set a limit on size of inflated input", limit_request_body),
    directive("DeflateInflateRatioLimit", Where::ANYWHERE, Shape::One, "200", "Set the inflate ratio limit above which inflation is aborted (default: 200)", ratio_limit),
    directive("DeflateInflateRatioBurst", Where::ANYWHERE, Shape::One, "3", "Set the maximum number of following inflate ratios above limit (default: 3)", ratio_burst),
    directive("DeflateAlterEtag", Where::SERVER, Shape::One, "AddSuffix", "Set how mod_deflate should modify ETAG response headers: 'AddSuffix' (default), 'NoChange' (2.2.x behavior), 'Remove'", alter_etag),
];

/// mod_deflate.
pub const MODULE: Module = Module {
    file: "mod_deflate.c",
    identifier: "deflate_module",
    active: Active::Usually,
    page: "mod_deflate",
    subject: "Bodies compressed for clients that take gzip, and unpacked again: the output \
              filters `DEFLATE` and `INFLATE`. The input filter `DEFLATE` unpacks the bodies \
              of requests. A 304 that answers the tag of the plain body has no Vary, as in Apache.",
    remarks: &["An application whose request body is unpacked sees neither Content-Length nor \
         Content-Encoding of the packed body. CGI programs of Apache see both."],
    directives: &[DIRECTIVES],
    provides: &[
        Provided::OutputFilter(DEFLATE),
        Provided::OutputFilter(INFLATE),
        Provided::InputFilter(INPUT),
    ],
};

fn filter_note(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match scope.server.deflate.notes.set(call.first(), call.second()) {
        true => Ok(()),
        false => Err(format!("Unknown note type {}", call.first())),
    }
}

/// A number within bounds, parsed as atoi(3) does: it ends at the first byte that is no digit.
fn number(text: &str, bounds: RangeInclusive<u8>) -> Option<u8> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text.get(..digits)?.parse().ok()?;
    bounds.contains(&number).then_some(number)
}

fn window_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(size) = number(call.first(), 1..=15) else {
        return Err("DeflateWindowSize must be between 1 and 15".into());
    };
    scope.server.deflate.window = Some(size);
    Ok(())
}

fn buffer_size(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let text = call.first();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let size = text.get(..digits).and_then(|digits| digits.parse::<i32>().ok());
    let size = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    let Some(size) = size else { return Err("DeflateBufferSize should be positive".into()) };
    scope.server.deflate.buffer = Some(size);
    Ok(())
}

fn mem_level(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(level) = number(call.first(), 1..=9) else {
        return Err("DeflateMemLevel must be between 1 and 9".into());
    };
    scope.server.deflate.mem_level = Some(level);
    Ok(())
}

fn compression_level(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(level) = number(call.first(), 1..=9) else {
        return Err("Compression Level must be between 1 and 9".into());
    };
    scope.server.deflate.level = Some(level);
    Ok(())
}

fn limit_request_body(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let limit = match call.first().parse::<i64>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            return Err("DeflateInflateLimitRequestBody is not parsable.".into());
        }
        limit => limit.ok().and_then(|limit| u64::try_from(limit).ok()),
    };
    let Some(limit) = limit else {
        return Err("DeflateInflateLimitRequestBody requires a non-negative integer.".into());
    };
    scope.directory.deflate.limit_request_body = Some(limit);
    Ok(())
}

/// A number above nought, as atoi(3) reads it.
fn positive(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text.get(..digits)?.parse::<i32>().ok()?;
    u64::try_from(number).ok().filter(|number| *number > 0)
}

fn ratio_limit(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(limit) = positive(call.first()) else {
        return Err("DeflateInflateRatioLimit must be positive".into());
    };
    scope.directory.deflate.ratio_limit = Some(limit);
    Ok(())
}

fn ratio_burst(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(burst) = positive(call.first()) else {
        return Err("DeflateInflateRatioBurst must be positive".into());
    };
    scope.directory.deflate.ratio_burst = Some(burst);
    Ok(())
}

fn alter_etag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(tag) = AlterTag::parse(argument(call, 0)) else {
        let text = "DeflateAlterETAG accepts only 'NoChange', 'AddSuffix', and 'Remove'";
        return Err(text.into());
    };
    scope.server.deflate.tag = Some(tag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn numbers_are_bounded() {
        let said = |text: &str| apply(MODULE, text).map(|scope| scope.server.deflate);
        assert_eq!(said("DeflateCompressionLevel 9").unwrap().level, Some(9));
        assert_eq!(said("DeflateWindowSize 1x").unwrap().window, Some(1));
        assert_eq!(said("DeflateMemLevel 3").unwrap().mem_level, Some(3));
        assert_eq!(said("DeflateBufferSize 100").unwrap().buffer, Some(100));
        for text in ["DeflateCompressionLevel 10", "DeflateCompressionLevel 0"] {
            assert_eq!(said(text).unwrap_err(), "Compression Level must be between 1 and 9");
        }
        assert_eq!(
            said("DeflateBufferSize -1").unwrap_err(),
            "DeflateBufferSize should be positive"
        );
        let section = apply(MODULE, "DeflateInflateRatioLimit 20\nDeflateInflateRatioBurst 5");
        let section = section.unwrap().directory.into_settings().deflate;
        assert_eq!((section.ratio_limit, section.ratio_burst), (Some(20), Some(5)));
        assert!(apply(MODULE, "DeflateInflateLimitRequestBody -1").is_err());
    }

    #[test]
    fn notes_are_of_three_kinds() {
        let text =
            "DeflateFilterNote plain\nDeflateFilterNote Input in\nDeflateFilterNote OUTPUT o";
        let said = apply(MODULE, text).unwrap().server.deflate;
        assert_eq!(said.notes.ratio.as_deref(), Some("plain"));
        assert_eq!(said.notes.input.as_deref(), Some("in"));
        assert_eq!(said.notes.output.as_deref(), Some("o"));
        let refused = apply(MODULE, "DeflateFilterNote x y").map(|_| ()).unwrap_err();
        assert_eq!(refused, "Unknown note type x");
    }
}
