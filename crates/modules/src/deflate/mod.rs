//! mod_deflate: responses compressed with gzip for clients that accept it (the output filter
//! `DEFLATE`), compressed responses unpacked (`INFLATE`), and compressed bodies of requests
//! unpacked (the input filter `DEFLATE`).

mod directives;
mod request_body;

pub use crate::NoSettings as Global;
pub use directives::MODULE;
pub use request_body::INPUT;

use crate::compression::accept::without_gzip;
use crate::compression::codec::{self, Codec, Encoder, Inflater};
use crate::compression::{
    AT_ONCE, AlterTag, Compressing, NoteNames, Taker, at_once, begin_change, compress, is_known,
    made_at_once, stream,
};
use crate::{Effect, Means, Merge, OutputFilter, Shared};
use evenkeel_message::{Answer, FilterPosition, Level, Name, Notice, Request, Response, Status};

/// The filter that compresses.
pub const DEFLATE: OutputFilter = OutputFilter {
    name: "DEFLATE",
    position: FilterPosition::CONTENT_SET,
    begin: None,
    act: deflate,
    external: None,
};

/// The filter that unpacks. It acts before those that change the content.
pub const INFLATE: OutputFilter = OutputFilter {
    name: "INFLATE",
    position: FilterPosition::RESOURCE.before(),
    begin: None,
    act: inflate,
    external: None,
};

/// Bodies of fewer bytes are not compressed, because the result would hardly be shorter
/// (mod_deflate.c: deflate_out_filter).
const SHORTEST: u64 = 69;

/// The settings of a virtual host. A field is `None` if the host does not set it.
#[derive(Clone, Debug, Default)]
pub struct Compression {
    /// DeflateCompressionLevel, 1 to 9. The default is zlib's own, 6.
    pub level: Option<u8>,
    /// DeflateWindowSize: the base 2 logarithm of the window in bytes. Values below 9 act as 9, the
    /// smallest window of the libraries.
    pub window: Option<u8>,
    /// DeflateMemLevel, which is accepted and changes nothing: the library chooses its memory.
    pub mem_level: Option<u8>,
    /// DeflateBufferSize, in bytes: how often the ratio of unpacked bytes is examined.
    pub buffer: Option<usize>,
    /// DeflateAlterETag.
    pub tag: Option<AlterTag>,
    /// DeflateFilterNote.
    pub notes: NoteNames,
}

/// The settings that virtual hosts share.
pub type Server = Shared<Compression>;

crate::unsaid!(Compression);

impl Merge for Compression {
    /// A virtual host with a directive of its own inherits none of the others, because mod_deflate
    /// has no function that merges the settings of servers.
    fn merge(_base: &Self, over: &Self) -> Self {
        over.clone()
    }
}

/// The settings of a section for bodies that are unpacked.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// DeflateInflateLimitRequestBody, in bytes.
    pub limit_request_body: Option<u64>,
    /// DeflateInflateRatioLimit.
    pub ratio_limit: Option<u64>,
    /// DeflateInflateRatioBurst.
    pub ratio_burst: Option<u64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; limit_request_body, ratio_limit, ratio_burst)
    }
}

impl Directory {
    /// The ratio that is too large, and how many times in a row it may be exceeded.
    fn ratio(&self) -> (u64, u64) {
        (self.ratio_limit.unwrap_or(200), self.ratio_burst.unwrap_or(3))
    }
}

/// Compresses the body (mod_deflate.c: deflate_out_filter).
fn deflate(
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    let env = &request.resource.env;
    let is_short = response.body.length().is_some_and(|length| length < SHORTEST);
    let media_type = response.fields.first(Name::ContentType).unwrap_or_default();
    let only_html = env.value("gzip-only-text/html") == Some(b"1");
    if is_short || env.contains("no-gzip") || (only_html && !media_type.starts_with(b"text/html")) {
        return Ok(Effect::Nothing);
    }
    let settings = &means.server.deflate;
    let (level, window) = (settings.level.unwrap_or(6), settings.window.unwrap_or(15));
    let compressing = Compressing {
        encoder: Encoder::Gzip { level, window },
        tag: settings.tag.unwrap_or_default(),
        notes: &settings.notes,
        module: "deflate",
        is_forced: env.contains("force-gzip"),
    };
    compress(request, means, compressing, response)
}

/// Unpacks a body that is encoded with gzip, whatever the client accepts (mod_deflate.c:
/// inflate_out_filter).
///
/// # Errors
/// 500 if the body is damaged, or unpacks to suspiciously many bytes, and this is found before any
/// of it is sent; 503 if it is long and no press is free.
fn inflate(
    request: &mut Request,
    means: &Means<'_>,
    response: &mut Response,
) -> Result<Effect, Answer> {
    if request.resource.depth > 0 || response.status == Status::NO_CONTENT {
        return Ok(Effect::Nothing);
    }
    if !without_gzip(request, response) {
        return Ok(Effect::Nothing);
    }
    let settings = &means.server.deflate;
    begin_change(settings.tag.unwrap_or_default(), response, b"-gunzip");
    if response.status == Status::NOT_MODIFIED || is_known(request, response) {
        return Ok(Effect::Changed);
    }
    if response.body.length() == Some(0) {
        return Ok(Effect::Changed);
    }
    let ratio = means.sections.deflate.ratio();
    let buffer = settings.buffer.unwrap_or(8096);
    let inflater = || Inflater::new(ratio.0, ratio.1, buffer);
    if let Some(bytes) = at_once(&response.body) {
        match codec::inflated(inflater(), &bytes, AT_ONCE) {
            Ok(Some(made)) => {
                response.body = made_at_once(request, &settings.notes, made);
                return Ok(Effect::Changed);
            }
            Ok(None) => {}
            Err(fault) => {
                request.notify(fault.notice(ratio));
                return Err(Status::INTERNAL_SERVER_ERROR.into());
            }
        }
    }
    let Some(taker) = Taker::of(request, || means.presses.take()) else {
        let text = "as many bodies as may be are being unpacked: this one is refused";
        request.notify(Notice::own("deflate", Level::Warn, text));
        return Err(Status::SERVICE_UNAVAILABLE.into());
    };
    let codec = || Codec::Inflate(Box::new(inflater()));
    let body = std::mem::take(&mut response.body);
    response.body = stream(request, means, &settings.notes, body, taker, codec, ratio, None);
    Ok(Effect::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestBody;
    use crate::compression::{CompressedForms, Presses};
    use crate::external::External;
    use crate::filters::{Stat, Subrequests};
    use crate::include::Tags;
    use crate::testing::apply;
    use crate::{Sections, ServerSettings};
    use bytes::Bytes;
    use evenkeel_message::{Body, Method, Peer, RequestHead};
    use evenkeel_sys::blocking_pool::BlockingPool;
    use std::rc::Rc;
    use std::sync::Arc;

    const GZIP: Encoder = Encoder::Gzip { level: 6, window: 15 };

    /// A site without other paths, which these filters do not need.
    struct NoPaths;

    impl Subrequests for NoPaths {
        fn stat(&self, _: &Request) -> Option<Stat> {
            None
        }

        fn is_plain(&self, _: &Request, _: Stat) -> bool {
            true
        }

        fn parse_page(&self, _: &mut Request, _: Arc<Tags>, page: Body) -> Body {
            page
        }

        fn source_of(&self, _: Body) -> RequestBody {
            panic!("no filter of content codings asks for it")
        }

        fn pass_through(&self, _: &mut Request, _: &Arc<External>, _: Body) -> RequestBody {
            panic!("no external filter is named")
        }
    }

    /// The means of the filters.
    struct Shop {
        server: ServerSettings,
        sections: Sections,
        blocking_pool: Arc<BlockingPool>,
        presses: Arc<Presses>,
        forms: Rc<CompressedForms>,
    }

    impl Shop {
        fn with_presses(count: usize) -> Self {
            let scope = apply(MODULE, "").unwrap();
            Self {
                server: scope.server,
                sections: scope.directory.into_settings(),
                blocking_pool: Arc::new(BlockingPool::new(1)),
                presses: Presses::new(count),
                forms: Rc::new(CompressedForms::new(1 << 20)),
            }
        }

        fn means(&self) -> Means<'_> {
            let Shop { server, sections, blocking_pool, presses, forms } = self;
            Means {
                server,
                sections,
                blocking_pool,
                presses,
                forms,
                subrequests: &NoPaths,
                limit_request_body: 1 << 20,
            }
        }

        /// Compresses a body for a request. Returns whether it was compressed.
        fn compress(&self, request: &mut Request, body: Body) -> (bool, Response) {
            let mut response = response(body);
            let effect = deflate(request, &self.means(), &mut response).unwrap();
            let is_done = effect == Effect::Compressed;
            assert_eq!(is_done && response.body.length() != Some(0), is_gzip(&response));
            (is_done, response)
        }
    }

    fn request(method: Method) -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let head = RequestHead { method, ..RequestHead::default() };
        let mut request = Request::new(head, Peer { client: address, local: address }, 0);
        request.fields_mut().set("Accept-Encoding", "gzip");
        request
    }

    fn response(body: Body) -> Response {
        let mut response = Response::new(Status::OK);
        response.fields.set("ETag", "\"tag\"");
        response.body = body;
        response
    }

    fn is_gzip(response: &Response) -> bool {
        response.fields.first("Content-Encoding") == Some(b"gzip")
    }

    /// Numbers one after another, which gzip makes about a quarter of.
    fn text(length: usize) -> Vec<u8> {
        let numbers: String = (0..length).map(|number| format!("{number} ")).collect();
        numbers.as_bytes()[..length].to_vec()
    }

    fn long() -> Body {
        Body::from(text(AT_ONCE + 1))
    }

    #[test]
    fn a_long_body_without_a_press_is_sent_as_it_is() {
        let shop = Shop::with_presses(1);
        let mut request = request(Method::Get);
        let (_, first) = shop.compress(&mut request, long());
        assert!(is_gzip(&first) && matches!(first.body, Body::Stream(_, None)));
        assert_eq!(first.fields.first("ETag"), Some(&b"\"tag-gzip\""[..]));
        let (is_done, second) = shop.compress(&mut request, long());
        assert!(!is_done && second.body.length() == Some(AT_ONCE as u64 + 1));
        assert_eq!(second.fields.first("ETag"), Some(&b"\"tag\""[..]));
        assert_eq!(second.fields.first("Vary"), Some(&b"Accept-Encoding"[..]));
        assert_eq!(request.notices.len(), 1);
        drop(first);
        assert!(shop.compress(&mut request, long()).0);
    }

    #[test]
    fn clients_of_compression_leave_presses_to_unpack_with() {
        let shop = Shop::with_presses(4);
        let mut get = request(Method::Get);
        let held: Vec<_> = std::iter::repeat_with(|| shop.compress(&mut get, long()))
            .take_while(|(is_done, _)| *is_done)
            .collect();
        let packed = GZIP.compressed(&text(2 * AT_ONCE)).unwrap().bytes;
        let mut unpacked = response(Body::Bytes(packed));
        get.resource.content.encoding = Some(b"gzip"[..].into());
        let effect = inflate(&mut get, &shop.means(), &mut unpacked).unwrap();
        assert_eq!((effect, held.len()), (Effect::Changed, 3));
    }

    #[test]
    fn what_nobody_reads_and_what_is_short_needs_no_press() {
        let shop = Shop::with_presses(0);
        let (is_done, head) = shop.compress(&mut request(Method::Head), long());
        assert!(is_done && matches!(head.body, Body::Stream(_, None)));
        let short = Body::from(text(AT_ONCE));
        let mut get = request(Method::Get);
        let (is_done, response) = shop.compress(&mut get, short);
        assert!(is_done && matches!(response.body, Body::Bytes(_)));
        assert_eq!(get.work, 32);
        let shortest = Body::from(text(SHORTEST as usize - 1));
        assert!(!shop.compress(&mut request(Method::Get), shortest).0);
    }

    #[test]
    fn a_body_that_the_cache_of_files_holds_is_compressed_once() {
        let shop = Shop::with_presses(1);
        let held = Bytes::from(text(AT_ONCE));
        let mut first = request(Method::Get);
        let (_, fresh) = shop.compress(&mut first, Body::Bytes(held.clone()));
        let mut second = request(Method::Get);
        let (_, kept) = shop.compress(&mut second, Body::Bytes(held.clone()));
        assert_eq!((first.work, second.work), (32, 0));
        let fields = |response: &Response| format!("{:?}", response.fields);
        assert_eq!(fields(&fresh), fields(&kept));
        let bytes = |response: &Response| match &response.body {
            Body::Bytes(bytes) => bytes.clone(),
            _ => panic!("the body is not in memory"),
        };
        assert_eq!(bytes(&fresh), bytes(&kept));
        // Another version of the page has other bytes.
        drop(held);
        let mut changed = text(AT_ONCE);
        changed[0] = b'x';
        let (_, fresh) = shop.compress(&mut second, Body::Bytes(Bytes::from(changed).clone()));
        assert_ne!(bytes(&fresh), bytes(&kept));
        assert_eq!(second.work, 32);
    }

    #[test]
    fn a_long_body_is_kept_once_it_was_received_whole() {
        let shop = Shop::with_presses(1);
        let held = Bytes::from(text(20 * AT_ONCE));
        let mut get = request(Method::Get);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (_, mut fresh) = shop.compress(&mut get, Body::Bytes(held.clone()));
        let Body::Stream(source, None) = &mut fresh.body else { panic!("it is not streamed") };
        let mut whole = Vec::new();
        let next = std::future::poll_fn(|context| source.as_mut().poll_chunk(context));
        whole.extend(runtime.block_on(next).unwrap().unwrap());
        // Nothing is kept before the end, and the first client holds the only press.
        let (_, early) = shop.compress(&mut get, Body::Bytes(held.clone()));
        assert!(!is_gzip(&early));
        let mut receive = || {
            let next = std::future::poll_fn(|context| source.as_mut().poll_chunk(context));
            runtime.block_on(next)
        };
        while let Some(piece) = receive() {
            whole.extend(piece.unwrap());
        }
        drop(fresh);
        let (_, kept) = shop.compress(&mut get, Body::Bytes(held));
        assert!(matches!(&kept.body, Body::Bytes(bytes) if *bytes == whole));
        assert!(is_gzip(&kept) && shop.presses.free() == 1);
    }

    #[test]
    fn a_client_that_has_the_body_is_told_so_and_keeps_no_press() {
        let shop = Shop::with_presses(1);
        let mut request = request(Method::Get);
        request.fields_mut().set("If-None-Match", "\"tag-gzip\"");
        let (_, response) = shop.compress(&mut request, long());
        assert_eq!((response.status, shop.presses.free()), (Status::NOT_MODIFIED, 1));
    }

    #[test]
    fn what_unpacks_to_much_needs_a_press() {
        let packed = GZIP.compressed(&text(2 * AT_ONCE)).unwrap().bytes;
        assert!(packed.len() < AT_ONCE);
        let unpack = |shop: &Shop| {
            let mut request = request(Method::Get);
            request.resource.content.encoding = Some(b"gzip"[..].into());
            let mut response = response(Body::Bytes(packed.clone()));
            inflate(&mut request, &shop.means(), &mut response)?;
            Ok::<_, Answer>(std::mem::take(&mut response.body))
        };
        assert!(matches!(unpack(&Shop::with_presses(1)), Ok(Body::Stream(_, None))));
        let refused = unpack(&Shop::with_presses(0));
        assert!(matches!(refused, Err(Answer::Status(Status::SERVICE_UNAVAILABLE, _))));
    }

    #[test]
    fn no_form_is_kept_of_a_short_body_of_this_response_alone() {
        let shop = Shop::with_presses(1);
        let (is_done, _) = shop.compress(&mut request(Method::Get), Body::from(text(1000)));
        assert!(is_done);
        assert_eq!(shop.forms.held().0, 0);
    }
}
