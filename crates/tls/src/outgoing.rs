//! A buffer of sealed bytes on their way to the socket. Its memory is initialized once and then
//! written over, because clearing 256 KiB for each turn costs as much as a third of sealing them.

/// Bytes that a [`Session`](crate::Session) has made and the transport has to send. A serving
/// thread owns one for all its connections; what a socket does not take is moved to a buffer of the
/// connection with [`Outgoing::take_rest`].
#[derive(Debug, Default)]
pub struct Outgoing {
    space: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    /// An empty buffer without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { space: Vec::new(), start: 0, end: 0 }
    }

    /// What is to be sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.space.get(self.start..self.end).unwrap_or_default()
    }

    /// How much is to be sent, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is to be sent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The memory of the buffer, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.space.capacity()
    }

    /// Notes that the socket has taken the first `count` bytes.
    pub fn sent(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Forgets what has not been sent.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Moves what has not been sent to a buffer of its own size. This buffer keeps its memory.
    #[must_use]
    pub fn take_rest(&mut self) -> Outgoing {
        let space = self.bytes().to_vec();
        self.clear();
        Outgoing { end: space.len(), space, start: 0 }
    }

    /// Appends bytes as they are.
    pub fn extend(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room(bytes.len()).get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.wrote(bytes.len());
        }
    }

    /// At least `count` writable bytes behind the last one.
    pub(crate) fn room(&mut self, count: usize) -> &mut [u8] {
        let needed = self.end + count;
        if self.space.len() < needed {
            let doubled = (self.space.len() * 2).min(self.space.len() + 64 * 1024);
            self.space.resize(needed.max(doubled), 0);
        }
        self.space.get_mut(self.end..).unwrap_or_default()
    }

    /// Notes that the first `count` bytes of [`Outgoing::room`] have been written.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.end = (self.end + count).min(self.space.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_goes_and_the_rest_can_be_taken_along() {
        let mut outgoing = Outgoing::new();
        outgoing.extend(b"abc");
        outgoing.extend(b"def");
        outgoing.sent(2);
        assert_eq!(outgoing.bytes(), b"cdef");
        let rest = outgoing.take_rest();
        assert_eq!((rest.bytes(), rest.memory()), (&b"cdef"[..], 4));
        assert!(outgoing.is_empty() && outgoing.memory() >= 6);
        outgoing.extend(b"g");
        assert_eq!(outgoing.bytes(), b"g");
        outgoing.sent(9);
        assert!(outgoing.is_empty());
    }
}
