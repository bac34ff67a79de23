//! mod_ratelimit: the output filter `RATE_LIMIT`, which sends a body in slices of 200 ms. The
//! variables `rate-limit` and `rate-initial-burst` say how many KiB a second. The filter decides
//! the pace; the body is paced after ranges have been cut out of it.

pub use crate::{NoSettings as Directory, NoSettings as Global, NoSettings as Server};

use crate::{Active, Effect, Means, Module, OutputFilter, Provided, RequestBody};
use bytes::{Bytes, BytesMut};
use evenkeel_message::{
    Answer, Chunk, FilterPosition, Level, Notice, Pace, Request, Response, Source, quoted,
};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The time of a slice (mod_ratelimit.c: RATE_INTERVAL_MS).
const SLICE: Duration = Duration::from_millis(200);

/// Slices a second.
const SLICES: u64 = 5;

/// mod_ratelimit.
pub const MODULE: Module = Module {
    file: "mod_ratelimit.c",
    identifier: "ratelimit_module",
    active: Active::WhenNamed,
    page: "mod_ratelimit",
    subject: "Responses that are sent at a bounded rate: the output filter `RATE_LIMIT`, with the \
              variables `rate-limit` and `rate-initial-burst` in KiB.",
    remarks: &["A response that is sent slowly holds no worker's credit while it waits."],
    directives: &[],
    provides: &[Provided::OutputFilter(RATE_LIMIT)],
};

/// The filter. It acts after those that compress.
const RATE_LIMIT: OutputFilter = OutputFilter {
    name: "RATE_LIMIT",
    position: FilterPosition::CONNECTION.before(),
    begin: None,
    act,
    external: None,
};

/// Decides the pace of a response (mod_ratelimit.c: rate_limit_filter).
fn act(request: &mut Request, _: &Means<'_>, response: &mut Response) -> Result<Effect, Answer> {
    let env = &request.resource.env;
    let Some(limit) = env.value("rate-limit").filter(|_| request.resource.depth == 0) else {
        return Ok(Effect::Nothing);
    };
    let Some(bytes) = kib(limit) else {
        let text = format!("rl: disabling: rate-limit = {} (too high?)", quoted(limit));
        request.notify(Notice::new("ratelimit", Level::Info, 3488, text));
        return Ok(Effect::Nothing);
    };
    let burst = match env.value("rate-initial-burst").map(|text| (kib(text), text.to_vec())) {
        None => 0,
        Some((Some(burst), _)) => burst,
        Some((None, text)) => {
            let text =
                format!("rl: disabling burst: rate-initial-burst = {} (too high?)", quoted(&text));
            request.notify(Notice::new("ratelimit", Level::Info, 3489, text));
            0
        }
    };
    response.pace = Some(Pace { slice: bytes / SLICES, burst });
    Ok(Effect::Nothing)
}

/// A number of KiB in bytes, as atoi(3) reads it. None if it is not positive as an int.
fn kib(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    let bytes = number.checked_mul(1024)?;
    (bytes > 0 && i32::try_from(bytes).is_ok()).then_some(bytes)
}

/// A body that comes in slices.
pub struct Paced {
    content: RequestBody,
    pace: Pace,
    /// What has come of the next slice.
    gathered: BytesMut,
    /// What has come beyond that slice.
    rest: Bytes,
    is_ended: bool,
    /// When the next slice may be sent; none before the first.
    pause: Option<Pin<Box<Sleep>>>,
    /// The time of a slice.
    interval: Duration,
}

impl Paced {
    /// Paces a body.
    #[must_use]
    pub fn new(content: RequestBody, pace: Pace) -> Self {
        let (gathered, rest) = (BytesMut::new(), Bytes::new());
        Self { content, pace, gathered, rest, is_ended: false, pause: None, interval: SLICE }
    }

    /// The bytes of the next slice. At least one, so that a tiny rate makes progress.
    fn wanted(&self) -> usize {
        usize::try_from((self.pace.slice + self.pace.burst).max(1)).unwrap_or(usize::MAX)
    }

    /// Gathers the next slice. It is shorter than wanted if the content pauses.
    fn poll_slice(&mut self, context: &mut Context<'_>) -> Poll<Option<std::io::Error>> {
        loop {
            let missing = self.wanted().saturating_sub(self.gathered.len());
            if missing == 0 || self.is_ended && self.rest.is_empty() {
                return Poll::Ready(None);
            }
            if !self.rest.is_empty() {
                let part = self.rest.split_to(missing.min(self.rest.len()));
                self.gathered.extend_from_slice(&part);
                continue;
            }
            match self.content.as_mut().poll_chunk(context) {
                Poll::Ready(Some(Ok(bytes))) => self.rest = bytes,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(error)),
                Poll::Ready(None) => self.is_ended = true,
                Poll::Pending if self.gathered.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(None),
            }
        }
    }
}

impl Source for Paced {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        let this = self.get_mut();
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(context));
        }
        if let Some(error) = ready!(this.poll_slice(context)) {
            return Poll::Ready(Some(Err(error)));
        }
        let slice = this.gathered.split().freeze();
        if slice.is_empty() {
            return Poll::Ready(None);
        }
        this.pace.burst = this.pace.burst.saturating_sub(slice.len() as u64);
        let end = Instant::now() + this.interval;
        match &mut this.pause {
            Some(pause) => pause.as_mut().reset(end),
            None => this.pause = Some(Box::pin(sleep_until(end))),
        }
        Poll::Ready(Some(Ok(slice)))
    }

    fn held(&self) -> u64 {
        (self.gathered.len() + self.rest.len()) as u64 + self.content.held()
    }

    fn ends_with_client(&self) -> bool {
        self.pause.is_some() || self.content.ends_with_client()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// One piece, and then the end.
    struct Whole(Option<Bytes>);

    impl Source for Whole {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            Poll::Ready(self.0.take().map(Ok))
        }
    }

    #[test]
    fn a_body_comes_in_slices_after_its_burst() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let content = Box::pin(Whole(Some(Bytes::from(vec![b'x'; 1000]))));
            let mut body = Paced::new(content, Pace { slice: 200, burst: 350 });
            body.interval = Duration::from_millis(5);
            let (begin, mut slices) = (Instant::now(), Vec::new());
            while let Some(slice) = poll_fn(|cx| Pin::new(&mut body).poll_chunk(cx)).await {
                assert!(begin.elapsed() >= body.interval * slices.len() as u32);
                slices.push(slice.unwrap().len());
            }
            assert_eq!(slices, [550, 200, 200, 50]);
        });
    }

    #[test]
    fn rates_are_read_as_atoi_reads_them() {
        for (text, bytes) in [
            ("1", Some(1024)),
            (" +2x", Some(2048)),
            ("0", None),
            ("-1", None),
            ("fast", None),
            ("2097151", Some(2_147_482_624)),
            ("2097152", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(kib(text.as_bytes()), bytes, "{text}");
        }
    }
}
