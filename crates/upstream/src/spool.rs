//! The body of a request, read whole before an application is asked, so that a slow client holds no
//! worker of it: a little in memory, more in a file without a name, which the blocking pool writes
//! and reads.

use bytes::Bytes;
use evenkeel_message::{MayWait, Source};
use evenkeel_sys::blocking_pool::{BlockingPool, BlockingTask};
use evenkeel_sys::open::nameless;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The most bytes of a body in memory.
pub const MOST_IN_MEMORY: usize = 64 << 10;

/// The bytes that are written and read at a time.
const STRETCH: usize = 256 << 10;

/// A body that has come whole.
#[derive(Debug, Default)]
pub struct Spool {
    memory: Vec<u8>,
    file: Option<Arc<File>>,
    length: u64,
}

/// Why a body was not read.
#[derive(Debug)]
pub enum SpoolError {
    /// The client's fault.
    Client(io::Error),
    /// This system's.
    System(io::Error),
}

impl Spool {
    /// Reads a body to its end. What does not fit into memory goes into a file in `folder`.
    ///
    /// # Errors
    /// The body cannot be read, or cannot be kept.
    pub async fn read(
        _: &MayWait,
        mut body: Pin<Box<dyn Source>>,
        folder: &Path,
        blocking_pool: &BlockingPool,
    ) -> Result<Spool, SpoolError> {
        let mut spool = Spool::default();
        let mut most = MOST_IN_MEMORY;
        while let Some(chunk) = poll_fn(|context| body.as_mut().poll_chunk(context)).await {
            let bytes = chunk.map_err(SpoolError::Client)?;
            spool.memory.extend_from_slice(&bytes);
            spool.length += bytes.len() as u64;
            if spool.memory.len() > most {
                spool.write_out(folder, blocking_pool).await.map_err(SpoolError::System)?;
                most = STRETCH;
            }
        }
        if spool.file.is_some() {
            spool.write_out(folder, blocking_pool).await.map_err(SpoolError::System)?;
        }
        Ok(spool)
    }

    /// The length of the body in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Moves what is in memory to the end of the file.
    async fn write_out(&mut self, folder: &Path, blocking_pool: &BlockingPool) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.memory);
        let (file, folder) = (self.file.clone(), folder.to_owned());
        let offset = self.length - bytes.len() as u64;
        let written = blocking_pool.spawn(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(File::from(nameless(&folder)?)),
            };
            file.write_all_at(&bytes, offset)?;
            Ok(file)
        });
        let no_thread = || Err(io::Error::other("no thread writes the body of the request"));
        self.file = Some(written.await.unwrap_or_else(no_thread)?);
        Ok(())
    }

    /// The body in pieces, from its beginning.
    pub(crate) fn reader(self, blocking_pool: Arc<BlockingPool>) -> SpoolReader {
        SpoolReader { spool: self, at: 0, reading: None, blocking_pool }
    }
}

/// Reads a spooled body.
pub(crate) struct SpoolReader {
    spool: Spool,
    at: u64,
    reading: Option<BlockingTask<io::Result<Vec<u8>>>>,
    blocking_pool: Arc<BlockingPool>,
}

impl SpoolReader {
    /// The next piece; none at the end.
    pub(crate) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        let left = self.spool.length - self.at;
        if left == 0 {
            return Poll::Ready(Ok(None));
        }
        let Some(file) = &self.spool.file else {
            self.at = self.spool.length;
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.spool.memory).into())));
        };
        let (pool, at) = (&self.blocking_pool, self.at);
        let reading = self.reading.get_or_insert_with(|| {
            let (file, length) = (Arc::clone(file), left.min(STRETCH as u64));
            pool.spawn(move || {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(STRETCH)];
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes)
            })
        });
        let read = ready!(Pin::new(reading).poll(context));
        self.reading = None;
        let bytes = read.unwrap_or_else(|| Err(io::Error::other("no thread reads the body")))?;
        self.at += bytes.len() as u64;
        Poll::Ready(Ok(Some(bytes.into())))
    }
}
