//! Interning: equal values exist once in the process. Configurations repeat long lists in each
//! virtual host, and a reload reads every line again while the old configuration still serves.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The fewest entries that are searched for dead ones.
const LEAST_SWEPT: usize = 1024;

/// A table of the values that are in use, by key. It keeps no value alive.
#[derive(Debug)]
pub struct Interner<K, V>(Mutex<Option<Table<K, V>>>);

#[derive(Debug)]
struct Table<K, V> {
    values: HashMap<K, Weak<V>>,
    /// The number of entries at which dead ones are removed.
    sweep_at: usize,
}

impl<K: Eq + Hash, V> Interner<K, V> {
    /// An empty table, for a static.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value of a key. It is made if no value of that key is in use.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub fn try_value<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<Arc<V>, E> {
        if let Some(value) = self.with(|table| table.values.get(&key).and_then(Weak::upgrade)) {
            return Ok(value);
        }
        // The table is not locked meanwhile. Two threads may make the same value, each its own.
        let value = Arc::new(make(&key)?);
        self.with(|table| table.keep(key, &value));
        Ok(value)
    }

    /// Like [`Interner::try_value`], for values that can always be made.
    pub fn value(&self, key: K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        match self.try_value(key, |key| Ok::<_, Infallible>(make(key))) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Table<K, V>) -> R) -> R {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(table.get_or_insert_with(|| Table { values: HashMap::new(), sweep_at: LEAST_SWEPT }))
    }
}

impl<K: Eq + Hash, V> Default for Interner<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// The lists of interned values that are in use. A reload that reads an equal list again takes the
/// one of before, so that the end of the old configuration does not write to the reference count of
/// each value, in memory that the parent shares with its children.
#[derive(Debug, Default)]
pub struct Lists<T>(Interner<Box<[usize]>, Vec<Arc<T>>>);

impl<T> Lists<T> {
    /// An empty table, for a static.
    #[must_use]
    pub const fn new() -> Self {
        Self(Interner::new())
    }

    /// Replaces a list by the one in use that has the same values.
    pub fn share(&self, list: &mut Arc<Vec<Arc<T>>>) {
        // A list keeps its values alive, so that their addresses identify it.
        let addresses = list.iter().map(|value| Arc::as_ptr(value) as usize).collect();
        *list = self.0.value(addresses, |_| std::mem::take(Arc::make_mut(list)));
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    fn keep(&mut self, key: K, value: &Arc<V>) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.values.shrink_to_fit();
            self.sweep_at = LEAST_SWEPT.max(2 * self.values.len());
        }
        self.values.insert(key, Arc::downgrade(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(interner: &Interner<u32, String>, key: u32) -> Arc<String> {
        interner.value(key, |key| key.to_string())
    }

    #[test]
    fn equal_keys_share_a_value_while_it_is_in_use() {
        let interner = Interner::new();
        let one = get(&interner, 1);
        assert!(Arc::ptr_eq(&one, &get(&interner, 1)));
        assert_eq!(*get(&interner, 2), "2");
        assert_eq!(interner.try_value(3, |_| Err("no")), Err("no"));
        let weak = Arc::downgrade(&one);
        drop(one);
        assert!(weak.upgrade().is_none());
        assert_eq!(*get(&interner, 1), "1");
    }

    #[test]
    fn lists_of_the_same_values_are_one_list() {
        let (values, lists) = (Interner::new(), Lists::new());
        let list = |keys: &[u32]| {
            let mut list = Arc::new(keys.iter().map(|key| get(&values, *key)).collect());
            lists.share(&mut list);
            list
        };
        let one = list(&[1, 2]);
        assert!(Arc::ptr_eq(&one, &list(&[1, 2])));
        for other in [&[2, 1][..], &[1], &[]] {
            assert!(!Arc::ptr_eq(&one, &list(other)));
        }
        let texts: Vec<&str> = one.iter().map(|text| text.as_str()).collect();
        assert_eq!(texts, ["1", "2"]);
    }

    #[test]
    fn dead_entries_do_not_pile_up() {
        let interner = Interner::new();
        let kept = get(&interner, 0);
        for key in 1..10 * LEAST_SWEPT as u32 {
            get(&interner, key);
        }
        assert!(interner.with(|table| table.values.len()) <= 2 * LEAST_SWEPT);
        assert!(Arc::ptr_eq(&kept, &get(&interner, 0)));
    }
}
