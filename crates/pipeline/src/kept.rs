//! What can be made anew and is kept while there is room, by key. It is bounded by its number and
//! by its weight; what was not asked for since the hand came by last goes first, one at a time.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// A key, and what it is asked for by.
pub(crate) trait Key: Hash {
    /// It has the same hash as the key.
    type Asked<'a>: Hash + Copy
    where
        Self: 'a;

    fn is(&self, asked: Self::Asked<'_>) -> bool;
}

impl<T: Hash + Eq> Key for Box<[T]> {
    type Asked<'a>
        = &'a [T]
    where
        T: 'a;

    fn is(&self, asked: &[T]) -> bool {
        **self == *asked
    }
}

impl<T: Hash + Eq> Key for (usize, Box<[T]>) {
    type Asked<'a>
        = (usize, &'a [T])
    where
        T: 'a;

    fn is(&self, (number, asked): (usize, &[T])) -> bool {
        self.0 == number && *self.1 == *asked
    }
}

/// How many that were asked for the hand passes before it takes the next in any case.
const LONGEST_SEARCH: usize = 64;

/// A bounded table.
pub(crate) struct Kept<K, V> {
    /// Where each stands, by the hash of its key; of two with the same hash, the later is kept.
    places: HashMap<u64, usize, foldhash::fast::RandomState>,
    things: Vec<Thing<K, V>>,
    /// Clients choose keys, so that their hash is seeded and of the stronger kind.
    seed: foldhash::quality::RandomState,
    hand: usize,
    weight: u64,
    most: usize,
    most_weight: u64,
}

struct Thing<K, V> {
    key: K,
    value: V,
    hash: u64,
    weight: u64,
    /// Whether it was asked for since the hand came by.
    is_used: Cell<bool>,
}

/// What had to go for a thing that was kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone<V> {
    /// What stood under its key.
    pub old: Option<V>,
    /// What made room for it.
    pub evicted: Vec<V>,
}

impl<K: Key, V> Kept<K, V> {
    /// A table of at most so many things, one at least, which weigh so much at most.
    pub(crate) fn new(most: usize, most_weight: u64) -> Self {
        Self {
            places: HashMap::default(),
            things: Vec::new(),
            seed: foldhash::quality::RandomState::default(),
            hand: 0,
            weight: 0,
            most: most.max(1),
            most_weight,
        }
    }

    pub(crate) fn of(&self, key: K::Asked<'_>) -> Option<&V> {
        let place = self.places.get(&self.seed.hash_one(key))?;
        let thing = self.things.get(*place).filter(|thing| thing.key.is(key))?;
        thing.is_used.set(true);
        Some(&thing.value)
    }

    /// Whether a thing of that weight is kept at all.
    pub(crate) fn has_room_for(&self, weight: u64) -> bool {
        weight <= self.most_weight
    }

    /// Keeps a thing, unless it is too heavy.
    pub(crate) fn keep(&mut self, key: K, value: V, weight: u64) -> Gone<V> {
        let hash = self.seed.hash_one(&key);
        let old = self.places.get(&hash).copied().and_then(|place| self.take(place));
        let mut gone = Gone { old, evicted: Vec::new() };
        if !self.has_room_for(weight) {
            return gone;
        }
        while self.things.len() >= self.most || self.weight + weight > self.most_weight {
            let Some(evicted) = self.evict() else { break };
            gone.evicted.push(evicted);
        }
        self.places.insert(hash, self.things.len());
        self.things.push(Thing { key, value, hash, weight, is_used: Cell::new(false) });
        self.weight += weight;
        gone
    }

    /// Lets those go that are named so.
    pub(crate) fn let_go(&mut self, goes: impl Fn(&K, &V) -> bool) {
        let mut place = 0;
        while let Some(thing) = self.things.get(place) {
            match goes(&thing.key, &thing.value) {
                true => drop(self.take(place)),
                false => place += 1,
            }
        }
    }

    /// Takes out the next that was not asked for since the hand came by.
    fn evict(&mut self) -> Option<V> {
        for _ in 0..LONGEST_SEARCH {
            if self.hand >= self.things.len() {
                self.hand = 0;
            }
            if !self.things.get(self.hand)?.is_used.replace(false) {
                break;
            }
            self.hand += 1;
        }
        if self.hand >= self.things.len() {
            self.hand = 0;
        }
        // The newest comes to stand there; its turn is not yet.
        let evicted = self.take(self.hand);
        self.hand += 1;
        evicted
    }

    /// Takes out what stands at a place, to which the last comes.
    fn take(&mut self, place: usize) -> Option<V> {
        if place >= self.things.len() {
            return None;
        }
        let taken = self.things.swap_remove(place);
        self.places.remove(&taken.hash);
        if let Some(moved) = self.things.get(place) {
            self.places.insert(moved.hash, place);
        }
        self.weight -= taken.weight;
        Some(taken.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: u8) -> Box<[u8]> {
        Box::new([text])
    }

    #[test]
    fn number_and_weight_are_bounded() {
        let mut kept = Kept::new(3, 100);
        let nothing = || Gone { old: None, evicted: Vec::new() };
        for name in 0..3 {
            assert_eq!(kept.keep(key(name), name, 30), nothing());
        }
        assert_eq!(kept.keep(key(1), 11, 40), Gone { old: Some(1), evicted: Vec::new() });
        assert_eq!((kept.of(&[1]), kept.weight), (Some(&11), 100));
        // One goes for its number, or as many as weigh too much.
        assert_eq!(kept.keep(key(3), 3, 1).evicted.len(), 1);
        assert_eq!((kept.things.len(), kept.of(&[1])), (3, Some(&11)));
        assert_eq!(kept.keep(key(4), 4, 100).evicted.len(), 3);
        assert_eq!((kept.things.len(), kept.weight, kept.of(&[4])), (1, 100, Some(&4)));
        // What is too heavy lets nothing go but what it replaces.
        assert_eq!((kept.keep(key(5), 5, 101), kept.things.len()), (nothing(), 1));
        assert_eq!(kept.keep(key(4), 1, 101), Gone { old: Some(4), evicted: Vec::new() });
        assert_eq!((kept.things.len(), kept.weight), (0, 0));
    }

    #[test]
    fn what_is_asked_for_stays() {
        let mut kept = Kept::new(100, 0);
        (0..100).for_each(|name| drop(kept.keep(key(name), (), 0)));
        for name in 100..=255 {
            assert!((0..50).all(|name| kept.of(&[name]).is_some()), "{name}");
            assert_eq!(kept.keep(key(name), (), 0).evicted.len(), 1);
            assert_eq!(kept.things.len(), 100);
        }
        assert!((50..100).all(|name| kept.of(&[name]).is_none()));
        kept.let_go(|name, ()| *name < key(50));
        assert!(kept.things.len() == 50 && (0..50).all(|name| kept.of(&[name]).is_none()));
    }

    #[test]
    fn a_number_before_it_tells_keys_apart() {
        let mut kept = Kept::new(9, 0);
        kept.keep((1, key(7)), "one", 0);
        kept.keep((2, key(7)), "two", 0);
        let found = |number| kept.of((number, &[7])).copied();
        assert_eq!((found(1), found(2), found(3)), (Some("one"), Some("two"), None));
    }

    proptest! {
        #[test]
        fn what_is_found_was_kept_last(
            most in 1_usize..9,
            steps in prop::collection::vec((0_u8..4, 0_u8..12, 0_u32..9, 0_u64..9), 0..200),
        ) {
            let mut kept: Kept<Box<[u8]>, u32> = Kept::new(most, 20);
            let mut last: HashMap<Box<[u8]>, u32> = HashMap::new();
            for (verb, name, value, weight) in steps {
                match verb {
                    0 => drop(kept.of(&[name])),
                    1 => kept.let_go(|other, _| *other == key(name)),
                    _ => drop(kept.keep(key(name), value, weight)),
                }
                if verb == 1 {
                    last.remove(&key(name));
                } else if verb > 1 {
                    last.insert(key(name), value);
                    prop_assert_eq!(kept.of(&[name]), Some(&value));
                }
                prop_assert!(kept.things.len() <= most && kept.weight <= 20);
                prop_assert_eq!(kept.places.len(), kept.things.len());
                prop_assert_eq!(kept.things.iter().map(|it| it.weight).sum::<u64>(), kept.weight);
                for (place, thing) in kept.things.iter().enumerate() {
                    prop_assert_eq!(last.get(&thing.key), Some(&thing.value));
                    prop_assert_eq!(kept.places.get(&thing.hash), Some(&place));
                }
            }
        }
    }
}
