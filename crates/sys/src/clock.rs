//! The kernel's clocks in microseconds. These functions cannot fail, and only those of CPU time
//! enter the kernel.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since an arbitrary start that never steps (CLOCK_MONOTONIC).
#[must_use]
pub fn monotonic_us() -> u64 {
    read(ClockId::Monotonic)
}

/// As [`monotonic_us`], in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let whole = u64::try_from(time.tv_sec).unwrap_or_default().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// As [`monotonic_us`], with the resolution of the kernel's tick (1 to 10 ms) and a quarter of the
/// cost.
#[must_use]
pub fn monotonic_coarse_us() -> u64 {
    read(ClockId::MonotonicCoarse)
}

/// Microseconds since 1970 (CLOCK_REALTIME); an administrator may step it.
#[must_use]
pub fn realtime_us() -> u64 {
    read(ClockId::Realtime)
}

/// CPU time of the calling thread in microseconds. A call takes about 0.4 microseconds.
#[must_use]
pub fn thread_cpu_us() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of the calling process, in microseconds.
#[must_use]
pub fn process_cpu_us() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// CPU time of all threads of another process, including those that have ended, in microseconds
/// (clock_getcpuclockid(3)); none if there is no such process.
#[must_use]
pub fn cpu_us_of(pid: i32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: the call writes one clock's number, which has room for it.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one time, which has room for it.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds.saturating_mul(1_000_000) + u64::try_from(time.tv_nsec).ok()? / 1_000)
}

/// User and system CPU time of all reaped children, in microseconds (getrusage(2)).
#[must_use]
pub fn reaped_children_cpu_us() -> (u64, u64) {
    // SAFETY: a zeroed rusage is valid, and the call fills it or leaves it as it is.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let sum = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000) + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    (sum(usage.ru_utime), sum(usage.ru_stime))
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanoseconds / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_forward() {
        let (first, second) = (monotonic_us(), monotonic_us());
        assert!(second >= first);
        assert!(realtime_us() > 1_600_000_000_000_000);
        assert!(process_cpu_us() >= thread_cpu_us() / 2);
        assert!(monotonic_coarse_us() <= monotonic_us());
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(cpu_us_of(own).unwrap() <= process_cpu_us());
        assert_eq!(cpu_us_of(4_194_305), None);
    }
}
