//! The flow-control windows of a connection and of a stream (RFC 9113, section 5.2), for each
//! direction.

/// The most that a window may hold.
pub(crate) const MOST: i64 = 0x7fff_ffff;

/// The window at the beginning, where nothing says otherwise.
pub(crate) const INITIAL: u32 = 65_535;

/// What may still be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(pub(crate) i64);

impl SendWindow {
    /// Opens the window. False if it becomes larger than a window may be.
    pub(crate) fn open(&mut self, increment: i64) -> bool {
        self.0 += increment;
        self.0 <= MOST
    }

    pub(crate) fn take(&mut self, length: usize) {
        self.0 -= length as i64;
    }

    /// How much may be sent; none after a SETTINGS that has closed the window.
    pub(crate) fn left(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }
}

/// What the client may still send. It is told of what was used once that is half of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    left: u32,
    /// What was used, and the client was not told.
    used: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self { size, left: size, used: 0 }
    }

    /// Notes what has arrived. False if the window does not allow it.
    pub(crate) fn receive(&mut self, length: usize) -> bool {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let left = self.left.checked_sub(length);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Notes that so many bytes were used. Returns by how much the window is to be opened, if it is
    /// worth a frame.
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
