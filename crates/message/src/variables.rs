//! Names with values that modules set for a request (`SetEnv`, notes). Names keep their case;
//! the list is short, so it is searched from front to back.

/// An ordered map of byte strings; a name stands in it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<Pair>);

/// A name and its value.
type Pair = (Box<[u8]>, Box<[u8]>);

impl Variables {
    /// Nothing set; nothing allocated.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Sets or replaces.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        match self.0.iter_mut().find(|(n, _)| **n == *name) {
            Some((_, old)) => *old = value.into(),
            None => self.0.push((name.into(), value.into())),
        }
    }

    /// Takes a name out.
    pub fn unset(&mut self, name: impl AsRef<[u8]>) {
        self.0.retain(|(n, _)| **n != *name.as_ref());
    }

    /// The value of a name.
    #[must_use]
    pub fn value(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.0.iter().find(|(n, _)| **n == *name.as_ref()).map(|(_, value)| &**value)
    }

    /// Whether a name is set.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.value(name).is_some()
    }

    /// Names and values in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(n, v)| (&**n, &**v))
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all and keeps the memory of the list.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
