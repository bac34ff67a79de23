//! mod_brotli: responses compressed with brotli (RFC 7932) for clients that accept it (the output
//! filter `BROTLI_COMPRESS`).

pub use crate::{NoSettings as Directory, NoSettings as Global};

use crate::compression::codec::Encoder;
use crate::compression::{AlterTag, Compressing, NoteNames, compress};
use crate::{
    Active, Directive, DirectiveResult, Effect, Means, Merge, Module, OutputFilter, Provided,
    Scope, Shared, Where, directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_message::{Answer, FilterPosition, Request, Response};
use std::ops::RangeInclusive;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("BrotliFilterNote", Where::SERVER, Shape::OneOrTwo, "", "Set a note to report on compression ratio", filter_note),
    directive("BrotliCompressionQuality", Where::SERVER, Shape::One, "5", "Compression quality between 0 and 11 (higher quality means slower compression)", quality),
    directive("BrotliCompressionWindow", Where::SERVER, Shape::One, "18", "Sliding window size between 10 and 24 (larger windows can improve compression, but require more memory)", window),
    directive("BrotliCompressionMaxInputBlock", Where::SERVER, Shape::One, "", "Maximum input block size between 16 and 24 (larger block sizes require more memory)", block),
    directive("BrotliAlterETag", Where::SERVER, Shape::One, "AddSuffix", "Set how mod_brotli should modify ETag response headers: 'AddSuffix' (default), 'NoChange', 'Remove'", alter_etag),
];

/// mod_brotli.
pub const MODULE: Module = Module {
    file: "mod_brotli.c",
    identifier: "brotli_module",
    active: Active::WhenNamed,
    page: "mod_brotli",
    subject: "Responses compressed with brotli for clients that accept it: the output filter \
              `BROTLI_COMPRESS`.",
    remarks: &["The bytes differ from those of Apache's library, and unpack to the same."],
    directives: &[DIRECTIVES],
    provides: &[Provided::OutputFilter(BROTLI_COMPRESS)],
};

/// The filter that compresses.
const BROTLI_COMPRESS: OutputFilter = OutputFilter {
    name: "BROTLI_COMPRESS",
    position: FilterPosition::CONTENT_SET,
    begin: None,
    act: brotli_compress,
    external: None,
};

/// The settings of a virtual host. A field is `None` if the host does not set it.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// BrotliCompressionQuality.
    quality: Option<u8>,
    /// BrotliCompressionWindow: the base 2 logarithm of the window in bytes.
    window: Option<u8>,
    /// BrotliCompressionMaxInputBlock: the base 2 logarithm of the block in bytes.
    block: Option<u8>,
    /// BrotliAlterETag.
    tag: Option<AlterTag>,
    /// BrotliFilterNote.
    notes: NoteNames,
}

/// The settings that virtual hosts share.
pub type Server = Shared<Settings>;

crate::unsaid!(Settings);

impl Merge for Settings {
    /// A virtual host with a directive of its own inherits none of the others, because mod_brotli
    /// has no function that merges the settings of servers.
    fn merge(_base: &Self, over: &Self) -> Self {
        over.clone()
    }
}

/// Compresses the body (mod_brotli.c: compress_filter). The defaults are those of
/// create_server_config.
fn brotli_compress(
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    if request.resource.env.contains("no-brotli") {
        return Ok(Effect::Nothing);
    }
    let settings = &means.server.brotli;
    let encoder = Encoder::Brotli {
        quality: settings.quality.unwrap_or(5),
        window: settings.window.unwrap_or(18),
        block: settings.block.unwrap_or(0),
    };
    let compressing = Compressing {
        encoder,
        tag: settings.tag.unwrap_or_default(),
        notes: &settings.notes,
        module: "brotli",
        is_forced: false,
    };
    compress(request, means, compressing, response)
}

fn filter_note(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    match scope.server.brotli.notes.set(call.first(), call.second()) {
        true => Ok(()),
        false => Err(format!("Unknown BrotliFilterNote type '{}'", call.first())),
    }
}

/// The number of a directive, parsed as atoi(3) does: it ends at the first byte that is no digit,
/// and is 0 if there is none.
fn number(call: &Call<'_>, bounds: &RangeInclusive<u8>, name: &str) -> Result<u8, String> {
    let text = call.first();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = match text.get(..digits).unwrap_or_default() {
        "" if !text.starts_with('-') => Some(0),
        digits => digits.parse().ok(),
    };
    number
        .filter(|number| bounds.contains(number))
        .ok_or_else(|| format!("{name} must be between {} and {}", bounds.start(), bounds.end()))
}

fn quality(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let quality = number(call, &(0..=11), "BrotliCompressionQuality")?;
    scope.server.brotli.quality = Some(quality);
    Ok(())
}

fn window(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let window = number(call, &(10..=24), "BrotliCompressionWindow")?;
    scope.server.brotli.window = Some(window);
    Ok(())
}

fn block(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let block = number(call, &(16..=24), "BrotliCompressionMaxInputBlock")?;
    scope.server.brotli.block = Some(block);
    Ok(())
}

fn alter_etag(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let Some(tag) = AlterTag::parse(call.first()) else {
        let text = "BrotliAlterETag accepts only 'AddSuffix', 'NoChange' and 'Remove'";
        return Err(text.into());
    };
    scope.server.brotli.tag = Some(tag);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn numbers_are_bounded() {
        let said = |text: &str| apply(MODULE, text).map(|scope| scope.server.brotli);
        assert_eq!(said("BrotliCompressionQuality 11").unwrap().quality, Some(11));
        assert_eq!(said("BrotliCompressionQuality best").unwrap().quality, Some(0));
        assert_eq!(said("BrotliCompressionWindow 24k").unwrap().window, Some(24));
        assert_eq!(said("BrotliCompressionMaxInputBlock 16").unwrap().block, Some(16));
        for (text, error) in [
            ("BrotliCompressionQuality 12", "BrotliCompressionQuality must be between 0 and 11"),
            ("BrotliCompressionQuality -1", "BrotliCompressionQuality must be between 0 and 11"),
            ("BrotliCompressionWindow 9", "BrotliCompressionWindow must be between 10 and 24"),
            (
                "BrotliCompressionMaxInputBlock 300",
                "BrotliCompressionMaxInputBlock must be between 16 and 24",
            ),
            (
                "BrotliAlterETag on",
                "BrotliAlterETag accepts only 'AddSuffix', 'NoChange' and 'Remove'",
            ),
            ("BrotliFilterNote x y", "Unknown BrotliFilterNote type 'x'"),
        ] {
            assert_eq!(said(text).map(|_| ()).unwrap_err(), error);
        }
        assert_eq!(said("BrotliAlterETag remove").unwrap().tag, Some(AlterTag::Remove));
        assert_eq!(said("BrotliFilterNote r").unwrap().notes.ratio.as_deref(), Some("r"));
    }
}
