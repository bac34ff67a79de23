//! Caching of responses: the rules of RFC 9111 and RFC 5861 as functions of fields and times, and
//! the store, which has a file for each response. `pipeline` asks the rules, and modules have the
//! directives.

mod clean;
mod control;
mod entry;
mod freshness;
mod key;
mod lock;
mod place;
mod shelf;
mod storing;
#[cfg(test)]
mod tests;
mod vary;
mod write;

pub use clean::{Bounds, Found, Report, Run, clean, each, remove_url};
pub use control::CacheControl;
pub use entry::{Content, Entry, Index, decode};
pub use freshness::{
    LifetimeRules, Times, Verdict, judge, may_use_on_error, may_use_while_validated, now,
};
pub use key::{Base, Key, KeyRules, Target};
pub use lock::Lock;
pub use place::{EXTENSION, Place, is_entry};
pub use shelf::{Opened, Shelf};
pub use storing::{
    Candidate, STATUS_FIELDS, StoringRules, contradicts, refusal, storable, updated,
};
pub use vary::{selecting_names, selecting_values};
pub use write::{Draft, Writer, complain, remove, take_complaint};
