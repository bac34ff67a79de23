//! Reads the lines of logs, plain, gzip or zstd (recognised by their first bytes), one at a time.
//! No more of a line is kept than the length of a possible request.

use super::log::Misfit;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A log that is being read.
pub(super) type Stream = Box<dyn BufRead + Send>;

/// Longer lines count as malformed, because no server accepts a request of that length.
pub(super) const MOST_LINE: usize = 64 << 10;
const BUFFER: usize = 64 << 10;

/// How a log is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Plain,
    Gzip,
    Zstd,
}

impl Storage {
    /// By the first bytes. A frame to be skipped may precede the frames of zstd (RFC 8878, section
    /// 3.1.2).
    fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Storage::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Storage::Zstd,
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Storage::Zstd,
            _ => Storage::Plain,
        }
    }
}

/// Opens a log; `-` is standard input.
pub(super) fn open(path: &Path) -> io::Result<(Stream, Storage)> {
    if path == Path::new("-") { decode(io::stdin()) } else { decode(File::open(path)?) }
}

/// Opens a plain log at an offset.
pub(super) fn open_at(path: &Path, offset: u64) -> io::Result<Stream> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER, file)))
}

fn decode(mut source: impl Read + Send + 'static) -> io::Result<(Stream, Storage)> {
    let mut head = Vec::new();
    source.by_ref().take(4).read_to_end(&mut head)?;
    let storage = Storage::of(&head);
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(source));
    let stream: Stream = match storage {
        Storage::Plain => Box::new(whole),
        Storage::Gzip => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole))),
        Storage::Zstd => Box::new(BufReader::with_capacity(BUFFER, Frames::new(whole))),
    };
    Ok((stream, storage))
}

/// The frames of a zstd file, one after the other.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), within: false }
    }

    /// Begins the next frame. Returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.within && !self.begin()? {
                return Ok(0);
            }
            self.within = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let told = self.decoder.get_checksum_from_data();
            if told.is_some() && told != self.decoder.get_calculated_checksum() {
                return Err(io::Error::other("a frame's checksum is wrong"));
            }
            self.within = false;
        }
    }
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The number, from 1.
    pub(super) number: u64,
    /// The bytes, or an error if there are too many.
    pub(super) bytes: Result<&'a [u8], Misfit>,
}

/// The lines of a stream.
pub(super) struct Lines {
    stream: Stream,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines {
    /// The lines of a stream that begins after `before` lines.
    pub(super) fn new(stream: Stream, before: u64) -> Self {
        Self { stream, number: before, buffer: Vec::new() }
    }

    /// The number of the line that was read last.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let ready = self.stream.fill_buf()?;
            if ready.is_empty() {
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', ready);
            let part = ready.get(..end.unwrap_or(ready.len())).unwrap_or_default();
            too_long |= self.buffer.len() + part.len() > MOST_LINE;
            if !too_long {
                self.buffer.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.stream.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        self.number += 1;
        let line = self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer);
        let wanted = format!("the end of a line of {MOST_LINE} bytes at the most");
        let bytes = if too_long { Err(Misfit { column: MOST_LINE, wanted }) } else { Ok(line) };
        Ok(Some(Line { number: self.number, bytes }))
    }
}

/// The part of the logs that one reader reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The file in which it begins.
    pub(super) file: usize,
    /// The offset at which it begins in a plain file.
    pub(super) offset: u64,
    /// The number of lines of the file before it.
    pub(super) before: u64,
    /// Whether these must be skipped by reading, as in a compressed file.
    pub(super) read_over: bool,
    /// The most lines of the part.
    pub(super) lines: u64,
}

impl Part {
    /// The logs from their beginning.
    pub(super) fn whole(lines: u64) -> Self {
        Self { file: 0, offset: 0, before: 0, read_over: false, lines }
    }
}

/// Divides logs into `count` parts, of `lines` lines each or all of the same length. Empty parts
/// are left out.
///
/// # Errors
///
/// Those of the system, with the name of the file.
pub(super) fn cut(paths: &[PathBuf], count: u64, lines: Option<u64>) -> Result<Vec<Part>, String> {
    let each = match lines {
        Some(lines) => lines,
        None => {
            let mut all = 0;
            walk(paths, |_, _, _, _| {
                all += 1;
                true
            })?;
            u64::div_ceil(all, count).max(1)
        }
    };
    let (mut parts, mut number) = (Vec::new(), 0);
    walk(paths, |file, storage, offset, before| {
        if number % each == 0 {
            let plain = storage == Storage::Plain;
            let offset = if plain { offset } else { 0 };
            parts.push(Part { file, offset, before, read_over: !plain, lines: each });
        }
        number += 1;
        (parts.len() as u64) < count
    })?;
    Ok(parts)
}

/// Calls `line` for the beginning of each line, with the number of the file, its storage, the
/// offset of the line and the number of lines before it, until it returns false.
fn walk(
    paths: &[PathBuf],
    mut line: impl FnMut(usize, Storage, u64, u64) -> bool,
) -> Result<(), String> {
    for (file, path) in paths.iter().enumerate() {
        let told = |error: io::Error| format!("{}: {error}", path.display());
        let (mut stream, storage) = open(path).map_err(told)?;
        let (mut offset, mut before, mut begins) = (0, 0, true);
        loop {
            let ready = stream.fill_buf().map_err(told)?;
            if ready.is_empty() {
                break;
            }
            if begins && !line(file, storage, offset, before) {
                return Ok(());
            }
            begins = false;
            for end in memchr::memchr_iter(b'\n', ready) {
                before += 1;
                if end + 1 == ready.len() {
                    begins = true;
                } else if !line(file, storage, offset + end as u64 + 1, before) {
                    return Ok(());
                }
            }
            let used = ready.len();
            offset += used as u64;
            stream.consume(used);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::fs;
    use std::io::Write as _;

    fn all(path: &Path) -> Vec<String> {
        let mut lines = Lines::new(open(path).unwrap().0, 0);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(String::from_utf8(line.bytes.unwrap().to_vec()).unwrap());
        }
        found
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    #[test]
    fn logs_are_read_as_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        // Concatenated archives are one log: members of gzip, frames of zstd with one to be
        // skipped.
        for bytes in [
            b"one\ntwo\r\nthree".to_vec(),
            [gzip("one\ntw"), gzip("o\nthree")].concat(),
            [skipped.clone(), zstd("one\ntw"), skipped, zstd("o\nthree\n")].concat(),
        ] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(all(&path), ["one", "two", "three"]);
        }
        fs::write(&path, "").unwrap();
        assert!(all(&path).is_empty());
    }

    #[test]
    fn archives_that_break_off_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let text = "line\n".repeat(1000);
        for mut bytes in [gzip(&text), zstd(&text)] {
            bytes.truncate(bytes.len() - 9);
            fs::write(&path, bytes).unwrap();
            let mut lines = Lines::new(open(&path).unwrap().0, 0);
            let error = std::iter::from_fn(|| lines.next().map(|line| line.map(drop)).transpose());
            assert_eq!(error.filter(Result::is_err).take(1).count(), 1);
        }
    }

    #[test]
    fn long_lines_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, format!("{}\n{}\nb\n", "a".repeat(MOST_LINE + 1), "c".repeat(MOST_LINE)))
            .unwrap();
        let mut lines = Lines::new(open(&path).unwrap().0, 0);
        assert!(lines.next().unwrap().unwrap().bytes.is_err());
        assert_eq!(lines.next().unwrap().unwrap().bytes.unwrap().len(), MOST_LINE);
        let last = lines.next().unwrap().unwrap();
        assert_eq!((last.number, last.bytes), (3, Ok(&b"b"[..])));
        assert!(lines.next().unwrap().is_none() && lines.buffer.capacity() <= 2 * MOST_LINE);
    }

    #[test]
    fn logs_are_cut_into_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "1\n2\n3\n").unwrap();
        fs::write(path("b"), gzip("4\n5\n6\n7\n")).unwrap();
        let paths = [path("a"), path("b")];
        let part = |file, offset, before, read_over, lines| Part {
            file,
            offset,
            before,
            read_over,
            lines,
        };
        let wanted = [part(0, 0, 0, false, 2), part(0, 4, 2, false, 2), part(1, 0, 1, true, 2)];
        assert_eq!(cut(&paths, 3, Some(2)).unwrap(), wanted);
        // Seven lines in three parts are three, three and one.
        let wanted = [part(0, 0, 0, false, 3), part(1, 0, 0, true, 3), part(1, 0, 3, true, 3)];
        assert_eq!(cut(&paths, 3, None).unwrap(), wanted);
        assert_eq!(cut(&paths, 100, None).unwrap().len(), 7);
        assert!(cut(&[path("none")], 2, None).unwrap_err().contains("none: "));
    }
}
