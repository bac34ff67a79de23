//! mod_cache_disk: where stored responses stand, and how large they may be. The room `cache` reads
//! and writes them.

pub use crate::NoSettings as Global;

use crate::{
    Active, Directive, DirectiveResult, Merge, Module, Scope, Shared, Where, argument, directive,
};
use evenkeel_cache::Place;
use evenkeel_config::{Call, Shape};
use std::sync::Arc;

/// CacheDirLevels and CacheDirLength where they are not said (mod_cache_disk.h).
const LEVELS: usize = 2;
const LENGTH: usize = 2;

/// The most characters of the names of folders on the way to a file (CACHEFILE_LEN).
const MOST_CHARACTERS: usize = 20;

/// CacheMinFileSize and CacheMaxFileSize in bytes where they are not said.
const LEAST_BYTES: u64 = 1;
const MOST_BYTES: u64 = 1_000_000;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("CacheRoot", Where::SERVER, Shape::One, "", "The directory to store cache files", root),
    directive("CacheDirLevels", Where::SERVER, Shape::One, "2", "The number of levels of subdirectories in the cache", levels),
    directive("CacheDirLength", Where::SERVER, Shape::One, "2", "The number of characters in subdirectory names", length),
    directive("CacheMinFileSize", Where::CONFIG, Shape::One, "1", "The minimum file size to cache a document", least),
    directive("CacheMaxFileSize", Where::CONFIG, Shape::One, "1000000", "The maximum file size to cache a document", most),
    directive("CacheReadSize", Where::CONFIG, Shape::One, "", "The maximum quantity of data to attempt to read and cache in one go", read_size),
    directive("CacheReadTime", Where::CONFIG, Shape::One, "", "The maximum time taken to attempt to read and cache in go", read_time),
];

/// mod_cache_disk.
pub const MODULE: Module = Module {
    file: "mod_cache_disk.c",
    identifier: "cache_disk_module",
    active: Active::WhenNamed,
    page: "mod_cache_disk",
    subject: "The files of cached responses (`CacheEnable disk`).",
    remarks: &[
        "A response is one file in a format of this server. Files of Apache's cache are not read; \
         the two may share a CacheRoot.",
        "The blocking pool writes while the client reads. If more than 1 MiB waits to be written, \
         or if a twentieth of the file system (1 GiB of a large one) would not stay free, the \
         response is not stored and the client sees nothing of it. CacheReadSize and \
         CacheReadTime have no effect.",
        "If CacheRoot cannot be written to, the error log says so once a minute, and requests are \
         answered without the cache.",
        "CacheRoot is relative to ServerRoot.",
    ],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// What a server says.
#[derive(Clone, Debug, Default)]
pub struct OfServer {
    root: Option<Arc<str>>,
    levels: Option<usize>,
    length: Option<usize>,
    /// Where the files stand, made of the above.
    place: Option<Arc<Place>>,
}

/// What a server says, which hosts share.
pub type Server = Shared<OfServer>;

crate::unsaid!(OfServer);

impl Merge for OfServer {
    fn merge(base: &Self, over: &Self) -> Self {
        let mut merged = Self {
            root: over.root.clone().or_else(|| base.root.clone()),
            levels: over.levels.or(base.levels),
            length: over.length.or(base.length),
            place: None,
        };
        merged.prepare();
        merged
    }
}

impl OfServer {
    fn prepare(&mut self) {
        let (levels, length) = (self.levels(), self.length());
        let place = |root: &Arc<str>| Arc::new(Place { root: (**root).into(), levels, length });
        self.place = self.root.as_ref().map(place);
    }

    fn levels(&self) -> usize {
        self.levels.unwrap_or(LEVELS)
    }

    fn length(&self) -> usize {
        self.length.unwrap_or(LENGTH)
    }

    /// Where the files stand; none without a CacheRoot.
    #[must_use]
    pub fn place(&self) -> Option<&Arc<Place>> {
        self.place.as_ref()
    }
}

/// What a section says: the bounds of bodies in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directory {
    least: Option<u64>,
    most: Option<u64>,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        inherit!(base, over; least, most)
    }
}

impl Directory {
    /// CacheMinFileSize and CacheMaxFileSize.
    #[must_use]
    pub fn bounds(&self) -> (u64, u64) {
        (self.least.unwrap_or(LEAST_BYTES), self.most.unwrap_or(MOST_BYTES))
    }
}

fn root(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let path = scope.server_path(call.first());
    let server = &mut *scope.server.cache_disk;
    server.root = Some(path.to_string_lossy().into());
    server.prepare();
    Ok(())
}

fn levels(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let server = &mut *scope.server.cache_disk;
    let levels = checked(call, server.length())?;
    server.levels = Some(levels);
    server.prepare();
    Ok(())
}

fn length(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let server = &mut *scope.server.cache_disk;
    let length = checked(call, server.levels())?;
    server.length = Some(length);
    server.prepare();
    Ok(())
}

/// A number, as atoi(3) reads it, whose product with the other is bounded.
fn checked(call: &Call<'_>, other: usize) -> Result<usize, String> {
    let text = argument(call, 0).trim_start();
    let digits = text.strip_prefix('+').unwrap_or(text);
    let number = digits.bytes().take_while(u8::is_ascii_digit).fold(0_usize, |number, digit| {
        number.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    });
    if number < 1 {
        return Err(format!("{} value must be an integer greater than 0", call.name));
    }
    if number.saturating_mul(other) > MOST_CHARACTERS {
        return Err(format!(
            "CacheDirLevels*CacheDirLength value must not be higher than {MOST_CHARACTERS}"
        ));
    }
    Ok(number)
}

fn least(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.cache_disk.least =
        Some(bytes(call, "the min size of a file to cache in bytes.")?);
    Ok(())
}

fn most(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    scope.directory.cache_disk.most =
        Some(bytes(call, "the max size of a file to cache in bytes.")?);
    Ok(())
}

fn read_size(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    bytes(call, "the max amount of data to cache in go.").map(drop)
}

fn read_time(_: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    bytes(call, "the max amount of time to cache in go.").map(drop)
}

/// A number of bytes, as strtoll(3) reads it. What follows it does not count.
fn bytes(call: &Call<'_>, what: &str) -> Result<u64, String> {
    let text = call.first().trim_start();
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let number = digits.bytes().take_while(u8::is_ascii_digit).fold(0_u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    match is_negative && number > 0 {
        true => Err(format!(
            "{} argument must be a non-negative integer representing {what}",
            call.name
        )),
        false => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::apply;

    #[test]
    fn files_stand_below_the_root() {
        let scope = apply(MODULE, "CacheRoot /c\nCacheDirLevels 3\nCacheDirLength 1").unwrap();
        let place = scope.server.cache_disk.place().unwrap();
        assert_eq!(**place, Place { root: "/c".into(), levels: 3, length: 1 });
        assert_eq!(apply(MODULE, "CacheDirLevels 3").unwrap().server.cache_disk.place(), None);
    }

    #[test]
    fn bad_numbers_are_refused() {
        for (line, text) in [
            ("CacheDirLevels 0", "CacheDirLevels value must be an integer greater than 0"),
            ("CacheDirLength x", "CacheDirLength value must be an integer greater than 0"),
            ("CacheDirLevels 11", "must not be higher than 20"),
            ("CacheMinFileSize -1", "non-negative integer"),
        ] {
            let error = apply(MODULE, line).err().unwrap();
            assert!(error.contains(text), "{line}: {error}");
        }
        let bounds = |line| apply(MODULE, line).unwrap().directory.cache_disk.bounds();
        assert_eq!(bounds("CacheMaxFileSize 5k"), (1, 5));
        assert_eq!(bounds("CacheMinFileSize 0"), (0, 1_000_000));
    }
}
