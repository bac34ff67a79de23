//! Names with values that modules set for a request (`SetEnv`, notes). Names are case-sensitive. A
//! short list, which nearly every request has, is searched from front to back. A long list, which
//! an .htaccess file can cause, has an index, so that access does not slow down with its length.

use std::collections::HashMap;

/// Lists of more names than this have an index.
const SCANNED: usize = 16;

/// An ordered map of byte strings. Each name occurs once.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// In the order in which they were first set. If there is an index, a removed pair leaves a
    /// gap, so that the other pairs stay where the index says.
    pairs: Vec<Option<Pair>>,
    index: Option<Box<Index>>,
}

/// A name and its value.
type Pair = (Box<[u8]>, Box<[u8]>);

/// The position of each name of a long list.
type Index = HashMap<Box<[u8]>, usize>;

impl PartialEq for Variables {
    /// Whether both lists have the same names with the same values in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Variables {}

impl Variables {
    /// An empty list, without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self { pairs: Vec::new(), index: None }
    }

    /// Sets or replaces a value.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        match self.place(name).and_then(|place| self.pairs.get_mut(place)) {
            Some(Some((_, old))) => *old = value.into(),
            _ => self.push(name, value),
        }
    }

    /// Removes a name.
    pub fn unset(&mut self, name: impl AsRef<[u8]>) {
        let name = name.as_ref();
        let Some(place) = self.place(name) else { return };
        let Some(index) = &mut self.index else {
            self.pairs.remove(place);
            return;
        };
        index.remove(name);
        if let Some(pair) = self.pairs.get_mut(place) {
            *pair = None;
        }
        // Rebuild the index once half of the list is gaps: each removed name pays for one step.
        if index.len() < self.pairs.len() / 2 {
            self.pairs.retain(Option::is_some);
            self.index = index_of(&self.pairs);
        }
    }

    /// The value of a name.
    #[must_use]
    pub fn value(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let place = self.place(name.as_ref())?;
        self.pairs.get(place)?.as_ref().map(|(_, value)| &**value)
    }

    /// Whether a name is set.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.place(name.as_ref()).is_some()
    }

    /// Names and values in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().flatten().map(|(n, v)| (&**n, &**v))
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Removes everything and keeps the memory of the list.
    pub fn clear(&mut self) {
        self.pairs.clear();
        self.index = None;
    }

    /// The position of a name.
    #[inline]
    fn place(&self, name: &[u8]) -> Option<usize> {
        // Usually nothing is set.
        if self.pairs.is_empty() { None } else { self.find(name) }
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        match &self.index {
            None => self.pairs.iter().position(|pair| is_named(pair, name)),
            Some(index) => index.get(name).copied(),
        }
    }

    /// Appends a name that is not in the list.
    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.pairs.push(Some((name.into(), value.into())));
        match &mut self.index {
            Some(index) => drop(index.insert(name.into(), self.pairs.len() - 1)),
            None => self.index = index_of(&self.pairs),
        }
    }
}

fn is_named(pair: &Option<Pair>, name: &[u8]) -> bool {
    #[cfg(test)]
    tests::step(1);
    pair.as_ref().is_some_and(|(n, _)| **n == *name)
}

/// The index of a list without gaps; none if the list is short.
fn index_of(pairs: &[Option<Pair>]) -> Option<Box<Index>> {
    if pairs.len() <= SCANNED {
        return None;
    }
    #[cfg(test)]
    tests::step(pairs.len());
    let names = pairs.iter().flatten().map(|(name, _)| name.clone());
    Some(Box::new(names.zip(0..).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Counts the names that are examined and put into indexes.
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn step(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    fn name(number: usize) -> String {
        format!("NAME_{number}")
    }

    /// The steps of setting, replacing, looking up and removing that many names.
    fn steps_of(count: usize) -> usize {
        let before = STEPS.get();
        let mut variables = Variables::new();
        for value in ["first", "second"] {
            (0..count).for_each(|number| variables.set(name(number), value));
        }
        assert!((0..count).all(|number| variables.value(name(number)) == Some(b"second")));
        assert!(!variables.contains(name(count)));
        (0..count).for_each(|number| variables.unset(name(number)));
        assert!(variables.is_empty());
        STEPS.get() - before
    }

    #[test]
    fn many_names_cost_no_more_than_their_number() {
        for count in [1000, 2000, 4000, 8000] {
            let steps = steps_of(count);
            assert!(steps < 4 * count, "{steps} steps for {count} names");
        }
    }

    #[test]
    fn short_and_long_lists_keep_their_order() {
        for count in [SCANNED - 1, SCANNED, SCANNED + 1, 5 * SCANNED] {
            let mut variables = Variables::new();
            (0..count).for_each(|number| variables.set(name(number), "v"));
            (0..count).step_by(3).for_each(|number| variables.unset(name(number)));
            variables.unset("name_1");
            variables.set("NAME_1", "w");
            variables.set("NAME_0", "again");
            let mut left: Vec<String> =
                (0..count).filter(|number| number % 3 > 0).map(name).collect();
            left.push(name(0));
            let names = variables.iter().map(|(name, _)| String::from_utf8_lossy(name));
            assert_eq!(names.collect::<Vec<_>>(), left, "{count}");
            assert_eq!(variables.value("NAME_1"), Some(&b"w"[..]));
            assert_eq!(variables, variables.clone());
            variables.clear();
            assert!(variables.is_empty() && !variables.contains("NAME_1"));
        }
    }

    /// The same map without an index, as the reference.
    #[derive(Default)]
    struct Plain(Vec<(u8, u8)>);

    impl Plain {
        fn set(&mut self, name: u8, value: u8) {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => self.0.push((name, value)),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(
            steps in proptest::collection::vec((0_u8..4, 0_u8..60, 0_u8..9), 0..400),
        ) {
            let (mut variables, mut plain) = (Variables::new(), Plain::default());
            for (verb, name, value) in steps {
                if verb == 0 {
                    variables.unset([name]);
                    plain.0.retain(|(known, _)| *known != name);
                } else {
                    variables.set([name], [value]);
                    plain.set(name, value);
                }
                let found = variables.iter().map(|(name, value)| (name[0], value[0]));
                proptest::prop_assert!(found.eq(plain.0.iter().copied()));
                let value = plain.0.iter().find(|(known, _)| *known == name);
                let value = value.map(|(_, value)| vec![*value]);
                proptest::prop_assert_eq!(variables.value([name]).map(<[u8]>::to_vec), value);
                proptest::prop_assert_eq!(variables.is_empty(), plain.0.is_empty());
            }
        }
    }
}
