//! What can be made anew and is kept while there is room: things by key, with what each weighs, go
//! in. They are bounded by their number and by their weight; beyond either all go and the table
//! begins anew.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A bounded table.
pub(crate) struct Kept<K, V> {
    things: HashMap<K, Thing<V>, foldhash::fast::RandomState>,
    weight: u64,
    most: usize,
    most_weight: u64,
}

struct Thing<V> {
    value: V,
    weight: u64,
}

/// What had to go for a thing that was kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gone<V> {
    Nothing,
    /// What stood under its key.
    Old(V),
    /// All that was there.
    All,
}

impl<K: Eq + Hash, V> Kept<K, V> {
    /// A table of at most so many things, which weigh so much at most.
    pub(crate) fn new(most: usize, most_weight: u64) -> Self {
        Self { things: HashMap::default(), weight: 0, most, most_weight }
    }

    pub(crate) fn of<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.things.get(key).map(|thing| &thing.value)
    }

    /// Whether a thing of that weight is kept at all.
    pub(crate) fn has_room_for(&self, weight: u64) -> bool {
        weight <= self.most_weight
    }

    /// Keeps a thing, unless it is too heavy.
    pub(crate) fn keep(&mut self, key: K, value: V, weight: u64) -> Gone<V> {
        let old = self.things.remove(&key);
        self.weight -= old.as_ref().map_or(0, |old| old.weight);
        if !self.has_room_for(weight) {
            return old.map_or(Gone::Nothing, |old| Gone::Old(old.value));
        }
        let is_full = self.things.len() >= self.most || self.weight + weight > self.most_weight;
        if is_full {
            self.clear();
        }
        self.things.insert(key, Thing { value, weight });
        self.weight += weight;
        match old {
            _ if is_full => Gone::All,
            Some(old) => Gone::Old(old.value),
            None => Gone::Nothing,
        }
    }

    /// Lets those go whose keys are named so.
    pub(crate) fn let_go(&mut self, goes: impl Fn(&K) -> bool) {
        let weight = &mut self.weight;
        self.things.retain(|key, thing| {
            let stays = !goes(key);
            *weight -= if stays { 0 } else { thing.weight };
            stays
        });
    }

    pub(crate) fn clear(&mut self) {
        self.things.clear();
        self.weight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_weight_are_bounded() {
        let mut kept = Kept::new(3, 100);
        for key in 0..3 {
            assert_eq!(kept.keep(key, key, 30), Gone::Nothing);
        }
        assert_eq!(kept.keep(1, 11, 40), Gone::Old(1));
        assert_eq!((kept.of(&1), kept.weight), (Some(&11), 100));
        assert_eq!(kept.keep(1, 12, 41), Gone::All);
        assert_eq!((kept.of(&0), kept.of(&1), kept.weight), (None, Some(&12), 41));
        assert_eq!(kept.keep(1, 13, 101), Gone::Old(12));
        assert_eq!((kept.of(&1), kept.weight), (None, 0));
        for key in 0..3 {
            assert_eq!(kept.keep(key, key, 0), Gone::Nothing);
        }
        assert_eq!(kept.keep(3, 3, 7), Gone::All);
        assert_eq!(kept.keep(4, 4, 5), Gone::Nothing);
        kept.let_go(|key| *key == 3);
        assert_eq!((kept.of(&3), kept.of(&4), kept.weight), (None, Some(&4), 5));
    }
}
