//! What can be made anew and is kept while there is room, by key: a cache that evicts by CLOCK. It
//! is bounded by its number and by its weight; what was not used since the hand came by last goes
//! first, one at a time.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// What a cache holds.
pub(crate) trait Entry {
    /// What it is asked for by.
    type Key<'a>: Hash + Copy
    where
        Self: 'a;

    fn key(&self) -> Self::Key<'_>;

    fn is(&self, key: Self::Key<'_>) -> bool;

    /// Whether it was used since the hand came by.
    fn used(&self) -> &Cell<bool>;
}

/// How many that were used the hand passes before it takes the next in any case.
const LONGEST_SEARCH: usize = 64;

/// A bounded cache.
pub(crate) struct Clock<V> {
    /// By the hash of the key; of two with the same hash, the later is kept.
    slots: HashMap<u64, Slot<V>, foldhash::fast::RandomState>,
    /// The hashes in the order in which the hand comes by.
    order: Vec<u64>,
    /// Clients choose keys, so that their hash is seeded and of the stronger kind.
    seed: foldhash::quality::RandomState,
    hand: usize,
    weight: u64,
    most: usize,
    most_weight: u64,
}

struct Slot<V> {
    value: V,
    /// Where its hash stands in the order.
    place: usize,
    weight: u64,
}

/// What had to go for an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone<V> {
    /// What stood under its key.
    pub old: Option<V>,
    /// What made room for it.
    pub evicted: Vec<V>,
}

impl<V: Entry> Clock<V> {
    /// A cache of at most so many entries, one at least, which weigh so much at most.
    pub(crate) fn new(most: usize, most_weight: u64) -> Self {
        Self {
            slots: HashMap::default(),
            order: Vec::new(),
            seed: foldhash::quality::RandomState::default(),
            hand: 0,
            weight: 0,
            most: most.max(1),
            most_weight,
        }
    }

    /// The entry of that key, which counts as used.
    pub(crate) fn get(&self, key: V::Key<'_>) -> Option<&V> {
        let value = self.peek(key)?;
        value.used().set(true);
        Some(value)
    }

    /// The entry of that key.
    pub(crate) fn peek(&self, key: V::Key<'_>) -> Option<&V> {
        let slot = self.slots.get(&self.seed.hash_one(key))?;
        Some(&slot.value).filter(|value| value.is(key))
    }

    /// Whether an entry of that weight is kept at all.
    pub(crate) fn has_room_for(&self, weight: u64) -> bool {
        weight <= self.most_weight
    }

    /// Keeps an entry, unless it is too heavy.
    pub(crate) fn insert(&mut self, value: V, weight: u64) -> Gone<V> {
        let hash = self.seed.hash_one(value.key());
        let mut gone = Gone { old: self.take(hash), evicted: Vec::new() };
        if !self.has_room_for(weight) {
            return gone;
        }
        while self.order.len() >= self.most || self.weight + weight > self.most_weight {
            let Some(evicted) = self.evict() else { break };
            gone.evicted.push(evicted);
        }
        value.used().set(false);
        self.slots.insert(hash, Slot { value, place: self.order.len(), weight });
        self.order.push(hash);
        self.weight += weight;
        gone
    }

    /// Takes the entry of that key out.
    pub(crate) fn remove(&mut self, key: V::Key<'_>) -> Option<V> {
        self.peek(key)?;
        self.take(self.seed.hash_one(key))
    }

    /// Takes out the next that was not used since the hand came by.
    fn evict(&mut self) -> Option<V> {
        for _ in 0..LONGEST_SEARCH {
            if self.hand >= self.order.len() {
                self.hand = 0;
            }
            let slot = self.slots.get(self.order.get(self.hand)?)?;
            if !slot.value.used().replace(false) {
                break;
            }
            self.hand += 1;
        }
        if self.hand >= self.order.len() {
            self.hand = 0;
        }
        // The newest comes to stand there; its turn is not yet.
        let evicted = self.take(*self.order.get(self.hand)?);
        self.hand += 1;
        evicted
    }

    /// Takes out what has that hash; the last in the order comes to its place.
    fn take(&mut self, hash: u64) -> Option<V> {
        let Slot { value, place, weight } = self.slots.remove(&hash)?;
        self.order.swap_remove(place);
        if let Some(moved) = self.order.get(place)
            && let Some(slot) = self.slots.get_mut(moved)
        {
            slot.place = place;
        }
        self.weight -= weight;
        Some(value)
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A number under a name.
    #[derive(Debug)]
    struct Named(u8, u32, Cell<bool>);

    impl PartialEq for Named {
        fn eq(&self, other: &Self) -> bool {
            (self.0, self.1) == (other.0, other.1)
        }
    }

    impl Entry for Named {
        type Key<'a> = u8;

        fn key(&self) -> u8 {
            self.0
        }

        fn is(&self, key: u8) -> bool {
            self.0 == key
        }

        fn used(&self) -> &Cell<bool> {
            &self.2
        }
    }

    fn named(name: u8, number: u32) -> Named {
        Named(name, number, Cell::new(false))
    }

    fn number(clock: &Clock<Named>, name: u8) -> Option<u32> {
        clock.get(name).map(|it| it.1)
    }

    #[test]
    fn number_and_weight_are_bounded() {
        let mut clock = Clock::new(3, 100);
        let nothing = || Gone { old: None, evicted: Vec::new() };
        for name in 0..3 {
            assert_eq!(clock.insert(named(name, 0), 30), nothing());
        }
        let old = Some(named(1, 0));
        assert_eq!(clock.insert(named(1, 11), 40), Gone { old, evicted: Vec::new() });
        assert_eq!((number(&clock, 1), clock.weight), (Some(11), 100));
        // One goes for its number, or as many as weigh too much.
        assert_eq!(clock.insert(named(3, 3), 1).evicted.len(), 1);
        assert_eq!((clock.len(), number(&clock, 1)), (3, Some(11)));
        assert_eq!(clock.insert(named(4, 4), 100).evicted.len(), 3);
        assert_eq!((clock.len(), clock.weight, number(&clock, 4)), (1, 100, Some(4)));
        // What is too heavy lets nothing go but what it replaces.
        assert_eq!((clock.insert(named(5, 5), 101), clock.len()), (nothing(), 1));
        let old = Some(named(4, 4));
        assert_eq!(clock.insert(named(4, 1), 101), Gone { old, evicted: Vec::new() });
        assert_eq!((clock.len(), clock.weight), (0, 0));
    }

    #[test]
    fn what_is_used_stays() {
        let mut clock = Clock::new(100, 0);
        (0..100).for_each(|name| drop(clock.insert(named(name, 0), 0)));
        for name in 100..=255 {
            assert!((0..50).all(|name| clock.get(name).is_some()), "{name}");
            assert_eq!(clock.insert(named(name, 0), 0).evicted.len(), 1);
            assert_eq!(clock.len(), 100);
        }
        assert!((50..100).all(|name| clock.get(name).is_none()));
        assert!(clock.remove(7).is_some() && clock.remove(7).is_none());
        assert!(clock.len() == 99 && clock.get(7).is_none());
    }

    proptest! {
        #[test]
        fn what_is_found_was_kept_last(
            most in 1_usize..9,
            steps in prop::collection::vec((0_u8..4, 0_u8..12, 0_u32..9, 0_u64..9), 0..200),
        ) {
            let mut clock = Clock::new(most, 20);
            let mut last: HashMap<u8, u32> = HashMap::new();
            for (verb, name, value, weight) in steps {
                match verb {
                    0 => drop(clock.get(name)),
                    1 => drop(clock.remove(name)),
                    _ => drop(clock.insert(named(name, value), weight)),
                }
                if verb == 1 {
                    last.remove(&name);
                } else if verb > 1 {
                    last.insert(name, value);
                    prop_assert_eq!(number(&clock, name), Some(value));
                }
                prop_assert!(clock.len() <= most && clock.weight <= 20);
                prop_assert_eq!(clock.slots.len(), clock.len());
                let weights = clock.slots.values().map(|slot| slot.weight);
                prop_assert_eq!(weights.sum::<u64>(), clock.weight);
                for (place, hash) in clock.order.iter().enumerate() {
                    let slot = clock.slots.get(hash);
                    prop_assert_eq!(slot.map(|slot| slot.place), Some(place));
                    prop_assert!(slot.is_some_and(|it| last.get(&it.value.0) == Some(&it.value.1)));
                }
            }
        }
    }
}
