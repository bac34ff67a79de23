//! Checks that a process may have enough descriptors for a child of the worker model, before the
//! first child starts: a child that cannot accept serves nothing, and the error says which number
//! to change. Event and prefork need none for each worker.

use crate::limits::{Limits, Model};
use crate::settings::Settings;
use crate::worker;

/// The descriptors of a child besides its threads and what it gets from the parent: its channel,
/// epoll sets, wakers and runtime, and a few files and folders that are read at a time.
const OF_A_CHILD: u64 = 24;

/// Checks a child with these limits, if a process may have `most` descriptors and the parent has
/// `open` that its children have too.
///
/// # Errors
/// The text for the administrator.
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
