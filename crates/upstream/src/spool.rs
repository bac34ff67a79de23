//! The spool of a request body: the body is read whole before the application is asked, so that a
//! slow client holds no worker of the application. A short body stays in memory. A longer one goes
//! into a file without a name, which the blocking pool writes and reads.

use bytes::Bytes;
use evenkeel_message::{Chunk, MayWait, Source};
use evenkeel_sys::blocking_pool::{BlockingPool, BlockingTask};
use evenkeel_sys::open::{Space, nameless, space_of};
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The most bytes of a body in memory.
const MOST_IN_MEMORY: usize = 64 << 10;

/// The bytes that are written and read at a time.
const STRETCH: usize = 256 << 10;

/// The most bytes of a file system that bodies leave free.
const MOST_RESERVE: u64 = 1 << 30;

/// A whole body. A copy shares the file.
#[derive(Clone, Debug, Default)]
pub struct Spool {
    memory: Vec<u8>,
    file: Option<Arc<File>>,
    length: u64,
}

/// The reason for which a body could not be spooled.
#[derive(Debug)]
pub enum SpoolError {
    /// The body could not be received.
    Client(io::Error),
    /// The body could not be stored.
    System(io::Error),
}

impl Spool {
    /// An empty body.
    pub(crate) const fn empty() -> Self {
        Self { memory: Vec::new(), file: None, length: 0 }
    }

    /// Reads a body to its end. A body that does not fit into memory goes into a file in `folder`.
    ///
    /// # Errors
    /// The body cannot be received, or cannot be stored: `StorageFull` if the file system of
    /// `folder` would have less than a tenth of its space and less than 1 GiB free.
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

    /// The body, if all of it is in memory.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        self.file.is_none().then_some(&*self.memory)
    }

    /// Appends the bytes in memory to the file.
    async fn write_out(&mut self, folder: &Path, blocking_pool: &BlockingPool) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.memory);
        let (file, folder) = (self.file.clone(), folder.to_owned());
        let offset = self.length - bytes.len() as u64;
        let written = blocking_pool.spawn(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(File::from(nameless(&folder)?)),
            };
            if !leaves_reserve(&space_of(&*file)?, bytes.len() as u64) {
                return Err(ErrorKind::StorageFull.into());
            }
            file.write_all_at(&bytes, offset)?;
            Ok(file)
        });
        let no_thread = || Err(io::Error::other("no thread writes the body of the request"));
        self.file = Some(written.await.unwrap_or_else(no_thread)?);
        Ok(())
    }

    /// The body as a source, from its beginning.
    #[must_use]
    pub fn into_source(self, blocking_pool: &Arc<BlockingPool>) -> Pin<Box<dyn Source>> {
        Box::pin(self.reader(Arc::clone(blocking_pool)))
    }

    /// The body in pieces, from its beginning.
    pub(crate) fn reader(self, blocking_pool: Arc<BlockingPool>) -> SpoolReader {
        SpoolReader { spool: self, at: 0, reading: None, blocking_pool }
    }
}

/// Whether a tenth of a file system, or 1 GiB of a large one, stays free if so many bytes are
/// written to it. Clients fill no disk that the rest of the machine needs.
fn leaves_reserve(space: &Space, bytes: u64) -> bool {
    space.free.saturating_sub(bytes) >= (space.total / 10).min(MOST_RESERVE)
}

/// The reading side of a spool.
pub(crate) struct SpoolReader {
    spool: Spool,
    at: u64,
    reading: Option<BlockingTask<io::Result<Vec<u8>>>>,
    blocking_pool: Arc<BlockingPool>,
}

impl Source for SpoolReader {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Chunk> {
        self.get_mut().poll_piece(context).map(io::Result::transpose)
    }
}

impl SpoolReader {
    /// Returns the next piece, and `None` at the end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_message::Chunk;
    use tokio::runtime::Builder;

    struct Pieces(Vec<Bytes>);

    impl Source for Pieces {
        fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Chunk> {
            Poll::Ready((!self.0.is_empty()).then(|| Ok(self.0.remove(0))))
        }
    }

    /// The body as it is read back, and whether a file holds it.
    fn spooled(pieces: &[usize]) -> (Vec<u8>, bool) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let (folder, pool) = (tempfile::tempdir().unwrap(), Arc::new(BlockingPool::new(1)));
        let piece = |(number, length): (usize, &usize)| {
            Bytes::from(vec![u8::try_from(number % 251).unwrap(); *length])
        };
        let body = Box::pin(Pieces(pieces.iter().enumerate().map(piece).collect()));
        runtime.block_on(async {
            let spool = Spool::read(&MayWait::in_task(), body, folder.path(), &pool).await.unwrap();
            assert_eq!(spool.length(), pieces.iter().sum::<usize>() as u64);
            let is_file = spool.file.is_some();
            let (mut reader, mut all) = (spool.reader(Arc::clone(&pool)), Vec::new());
            while let Some(bytes) = poll_fn(|context| reader.poll_piece(context)).await.unwrap() {
                all.extend_from_slice(&bytes);
            }
            (all, is_file)
        })
    }

    #[test]
    fn a_body_is_read_back_from_memory_or_from_its_file() {
        for (pieces, is_file) in [
            (&[][..], false),
            (&[1, 2, 3], false),
            (&[MOST_IN_MEMORY], false),
            (&[MOST_IN_MEMORY, 1], true),
            (&[STRETCH + 1, STRETCH, 5, 3 * STRETCH], true),
        ] {
            let want: Vec<u8> = pieces
                .iter()
                .enumerate()
                .flat_map(|(number, length)| vec![u8::try_from(number).unwrap(); *length])
                .collect();
            assert!(spooled(pieces) == (want, is_file), "{pieces:?}");
        }
    }

    #[test]
    fn a_tenth_of_the_file_system_or_a_gibibyte_stays_free() {
        let space = Space { free: 300, total: 1000 };
        assert!(leaves_reserve(&space, 200) && !leaves_reserve(&space, 201));
        assert!(!leaves_reserve(&space, u64::MAX));
        let large = Space { free: 5 << 30, total: 1 << 40 };
        assert!(leaves_reserve(&large, 4 << 30) && !leaves_reserve(&large, (4 << 30) + 1));
    }
}
