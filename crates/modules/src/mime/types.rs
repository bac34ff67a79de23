//! The file of media types (mime.types): its text goes in, a table by extension comes out.

use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Media types by extension.
#[derive(Clone, Debug, Default)]
pub struct Types(HashMap<Box<str>, Box<str>, foldhash::fast::RandomState>);

impl Types {
    /// Reads a file of types.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = std::fs::read(path)?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Takes a text apart: each line a type and its extensions, `#` begins a comment line.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut types = HashMap::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(media_type) = words.next() else { continue };
            for extension in words {
                types.insert(extension.to_ascii_lowercase().into(), media_type.into());
            }
        }
        Self(types)
    }

    /// The types of what sites are usually made of, for a server that has no file of types.
    #[must_use]
    pub fn usual() -> Self {
        Self::parse(USUAL)
    }

    /// The type of an extension in lower case.
    #[must_use]
    pub fn of(&self, extension: &str) -> Option<&str> {
        self.0.get(extension).map(|media_type| &**media_type)
    }
}

const USUAL: &str = "\
text/html html htm
text/css css
text/plain txt text log conf
text/javascript js mjs
text/csv csv
text/xml xml xsl
text/markdown md
text/calendar ics
application/json json map
application/ld+json jsonld
application/manifest+json webmanifest
application/pdf pdf
application/wasm wasm
application/xhtml+xml xhtml xht
application/atom+xml atom
application/rss+xml rss
application/zip zip
application/x-tar tar
application/octet-stream bin
image/png png
image/jpeg jpg jpeg
image/gif gif
image/svg+xml svg svgz
image/webp webp
image/avif avif
image/vnd.microsoft.icon ico
audio/mpeg mp3
audio/ogg ogg oga
video/mp4 mp4
video/webm webm
font/woff woff
font/woff2 woff2
font/ttf ttf
font/otf otf
";
