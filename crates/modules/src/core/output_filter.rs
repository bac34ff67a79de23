//! The output filters of the core, through which every response goes. A configuration can name
//! them, which changes nothing.

use crate::{Effect, OutputFilter, Provided};
use evenkeel_message::FilterPosition;

/// The filters that Apache has for every response.
pub(super) const OUTPUT_FILTERS: &[Provided] = &[
    always("BYTERANGE"),
    always("CHUNK"),
    always("CONTENT_LENGTH"),
    always("CORE"),
    always("FIXUP_HEADERS_ERR"),
    always("FIXUP_HEADERS_OUT"),
    always("HTTP_HEADER"),
    always("HTTP_OUTERROR"),
];

const fn always(name: &'static str) -> Provided {
    Provided::OutputFilter(OutputFilter {
        name,
        position: FilterPosition::CONTENT_SET,
        begin: None,
        act: |_, _, _| Ok(Effect::Nothing),
        external: None,
    })
}
