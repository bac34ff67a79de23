//! Whether the descriptors that a process may have suffice for a child. What a thread of worker
//! needs is added up before the first child starts: one that cannot accept serves nobody, and a
//! start that is refused says which number to change. Event and prefork need none for a worker.

use crate::limits::{Limits, Model};
use crate::settings::Settings;
use crate::worker;

/// What a child needs beside its threads and what it has from the parent: its channel, sets, bells
/// and the runtime, and a few files and folders that are read at a time.
const OF_A_CHILD: u64 = 24;

/// Checks that a child of these limits has enough where a process may have `most` and the parent
/// has `open` that its children have too.
///
/// # Errors
/// What to tell the administrator.
pub(crate) fn check(
    settings: &Settings,
    limits: &Limits,
    open: u64,
    most: u64,
) -> Result<(), String> {
    if limits.model != Model::Worker {
        return Ok(());
    }
    let threads = limits.threads_per_child;
    let each = worker::DESCRIPTORS_PER_THREAD;
    let besides = open.saturating_add(OF_A_CHILD);
    let needed = (threads as u64).saturating_mul(each).saturating_add(besides);
    if needed <= most {
        return Ok(());
    }
    let place = settings.threads_per_child.as_deref().unwrap_or("the default");
    Err(format!(
        "ThreadsPerChild {threads} ({place}) needs {needed} descriptors in each child, {each} for \
         a thread and {besides} besides, and a process may have {most} (ulimit -n {most}): lower \
         ThreadsPerChild, or raise that limit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{self, Configured, Moment};

    fn of(model: Model, threads: i64, most: u64) -> Result<(), String> {
        let configured = Configured {
            model,
            thread_limit: Some(threads),
            threads_per_child: Some(threads),
            max_request_workers: Some(threads),
            ..Configured::default()
        };
        let (limits, _) = limits::check(&configured, Moment::Start, 2, 4096);
        let place = Some("line 7 of httpd.conf".to_owned());
        check(&Settings { threads_per_child: place, ..Settings::default() }, &limits, 10, most)
    }

    #[test]
    fn threads_that_no_descriptors_are_there_for_are_refused_with_the_sum() {
        assert_eq!(of(Model::Worker, 250, 534), Ok(()));
        assert_eq!(
            of(Model::Worker, 250, 533).unwrap_err(),
            "ThreadsPerChild 250 (line 7 of httpd.conf) needs 534 descriptors in each child, 2 \
             for a thread and 34 besides, and a process may have 533 (ulimit -n 533): lower \
             ThreadsPerChild, or raise that limit"
        );
        assert_eq!(of(Model::Event, 250, 60), Ok(()));
        assert_eq!(of(Model::Prefork, 250, 60), Ok(()));
    }
}
