//! The flow-control windows of a connection and of a stream (RFC 9113, section 5.2), for each
//! direction.

/// The maximum size of a window.
pub(crate) const MOST: i64 = 0x7fff_ffff;

/// The default initial size of a window.
pub(crate) const INITIAL: u32 = 65_535;

/// How many bytes the server may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(pub(crate) i64);

impl SendWindow {
    /// Enlarges the window. False if it exceeds the maximum size.
    pub(crate) fn open(&mut self, increment: i64) -> bool {
        self.0 += increment;
        self.0 <= MOST
    }

    pub(crate) fn take(&mut self, length: usize) {
        self.0 -= length as i64;
    }

    /// How many bytes may be sent; 0 if SETTINGS has made the window negative.
    pub(crate) fn left(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }
}

/// How many bytes the client may still send. The server sends a WINDOW_UPDATE once half of the
/// window was consumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    left: u32,
    /// The bytes that were consumed since the last WINDOW_UPDATE.
    used: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self { size, left: size, used: 0 }
    }

    /// Counts received bytes. False if they exceed the window.
    pub(crate) fn receive(&mut self, length: usize) -> bool {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(length);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Counts consumed bytes. Returns the increment for a WINDOW_UPDATE if one is due.
    pub(crate) fn use_up(&mut self, length: usize) -> Option<u32> {
        self.used = self.used.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        if self.used == 0 || self.used < self.size / 2 {
            return None;
        }
        let increment = std::mem::take(&mut self.used);
        self.left = self.left.saturating_add(increment);
        Some(increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_opened_by_halves() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100) && !window.receive(1));
        assert_eq!(window.use_up(49), None);
        assert_eq!(window.use_up(1), Some(50));
        assert!(window.receive(50) && !window.receive(1));
    }

    #[test]
    fn a_window_may_be_below_zero() {
        let mut window = SendWindow(10);
        assert!(window.open(-20));
        assert_eq!(window.left(), 0);
        assert!(window.open(MOST) && !window.open(MOST));
    }
}
