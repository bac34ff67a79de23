//! The status page for machines (`?auto`): lines of `Key: value`, with mod_status's keys in its
//! order. Existing readers split the version at `/`, skip lines with two colons and lose what
//! follows a line of 64 KiB; the page takes all three into account.

use crate::clock;
use crate::number::{duration, general};
use crate::page::Letterhead;
use crate::pool::Pool;
use crate::snapshot::Snapshot;
use evenkeel_pool::Figure;
use std::fmt::Write;

pub(crate) fn render(snapshot: &Snapshot, letterhead: &Letterhead<'_>) -> String {
    let mut page = String::with_capacity(2_048);
    // Writing to a string cannot fail, here and below.
    let _ = write_server(snapshot, letterhead, &mut page);
    if snapshot.facts.extended {
        let _ = write_totals(snapshot, &mut page);
    }
    let _ = write_workers(snapshot, &mut page);
    if let Some(pool) = &snapshot.pool {
        let _ = write_pool(pool, &mut page);
        let _ = writeln!(page, "CompressedFormBytes: {}", snapshot.compressed_form_bytes);
        let _ = writeln!(page, "Tunnels: {}", snapshot.tunnels);
    }
    for application in &snapshot.applications {
        let _ = application.write_auto(&mut page);
    }
    for (number, listener) in snapshot.listeners.iter().enumerate() {
        let _ = listener.write_auto(number, &mut page);
    }
    page
}

fn write_server(
    snapshot: &Snapshot,
    letterhead: &Letterhead<'_>,
    page: &mut String,
) -> std::fmt::Result {
    let facts = &snapshot.facts;
    let uptime = snapshot.uptime_s();
    let [load1, load5, load15] = snapshot.load;
    writeln!(page, "{}", letterhead.name)?;
    writeln!(page, "ServerVersion: {}", facts.version)?;
    writeln!(page, "ServerMPM: {}", facts.mpm)?;
    writeln!(page, "Server Built: {}", facts.built)?;
    writeln!(page, "CurrentTime: {}", clock::text(snapshot.now_us))?;
    writeln!(page, "RestartTime: {}", clock::text(snapshot.restart_us))?;
    writeln!(page, "ParentServerConfigGeneration: {}", snapshot.config_generation)?;
    writeln!(page, "ParentServerMPMGeneration: {}", snapshot.mpm_generation)?;
    writeln!(page, "ServerUptimeSeconds: {uptime}")?;
    writeln!(page, "ServerUptime:{}", duration(uptime))?;
    writeln!(page, "Load1: {load1:.2}")?;
    writeln!(page, "Load5: {load5:.2}")?;
    writeln!(page, "Load15: {load15:.2}")
}

fn write_totals(snapshot: &Snapshot, page: &mut String) -> std::fmt::Result {
    let uptime = snapshot.uptime_s();
    let cpu = snapshot.cpu;
    let kilobytes = snapshot.bytes / 1024;
    writeln!(page, "Total Accesses: {}", snapshot.accesses)?;
    writeln!(page, "Total kBytes: {kilobytes}")?;
    writeln!(page, "Total Duration: {}", snapshot.duration_ms)?;
    writeln!(page, "CPUUser: {}", general(cpu.user))?;
    writeln!(page, "CPUSystem: {}", general(cpu.system))?;
    writeln!(page, "CPUChildrenUser: {}", general(cpu.children_user))?;
    writeln!(page, "CPUChildrenSystem: {}", general(cpu.children_system))?;
    if cpu.total() > 0.0 && uptime > 0 {
        writeln!(page, "CPULoad: {}", general(cpu.total() / uptime as f64 * 100.0))?;
    }
    writeln!(page, "Uptime: {uptime}")?;
    let bytes = 1024.0 * kilobytes as f64;
    if uptime > 0 {
        writeln!(page, "ReqPerSec: {}", general(snapshot.accesses as f64 / uptime as f64))?;
        writeln!(page, "BytesPerSec: {}", general(bytes / uptime as f64))?;
    }
    if snapshot.accesses > 0 {
        let accesses = snapshot.accesses as f64;
        writeln!(page, "BytesPerReq: {}", general(bytes / accesses))?;
        writeln!(page, "DurationPerReq: {}", general(snapshot.duration_ms as f64 / accesses))?;
    }
    Ok(())
}

fn write_workers(snapshot: &Snapshot, page: &mut String) -> std::fmt::Result {
    let counts = snapshot.counts();
    writeln!(page, "BusyWorkers: {}", counts.busy)?;
    writeln!(page, "GracefulWorkers: {}", counts.graceful)?;
    writeln!(page, "IdleWorkers: {}", counts.idle)?;
    if snapshot.facts.asynchronous {
        let connections = snapshot.connections();
        writeln!(page, "Processes: {}", snapshot.children.len())?;
        writeln!(page, "Stopping: {}", snapshot.stopping())?;
        writeln!(page, "ConnsTotal: {}", connections.total)?;
        writeln!(page, "ConnsAsyncWaitIO: {}", connections.waiting)?;
        writeln!(page, "ConnsAsyncWriting: {}", connections.writing)?;
        writeln!(page, "ConnsAsyncKeepAlive: {}", connections.keep_alive)?;
        writeln!(page, "ConnsAsyncClosing: {}", connections.closing)?;
    }
    writeln!(page, "Scoreboard: {}", snapshot.letters())
}

/// The figures that Apache's page does not have, after all that it has.
fn write_pool(pool: &Pool, page: &mut String) -> std::fmt::Result {
    let told = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), general);
    let figure = |figure| told(pool.now.value(figure));
    writeln!(page, "PoolLimit: {}", pool.limit)?;
    writeln!(page, "PoolReqPerSec: {}", told(pool.rps))?;
    writeln!(page, "PoolMaxReqPerSec: {}", told(pool.maximum_rps))?;
    let next = pool.next.as_ref();
    writeln!(page, "PoolNextLimit: {}", next.map_or("unknown", |next| next.limit))?;
    writeln!(page, "PoolNextLimitReqPerSec: {}", told(next.map(|next| next.rps)))?;
    writeln!(page, "PoolSupply: {}", figure(Figure::Supply))?;
    writeln!(page, "PoolDemand: {}", figure(Figure::Demand))?;
    writeln!(page, "PoolQueue: {}", figure(Figure::Queue))?;
    writeln!(page, "PoolMaxWorkers: {}", figure(Figure::Workers))?;
    writeln!(page, "PoolChildren: {}", figure(Figure::Active))?;
    writeln!(page, "PoolParked: {}", figure(Figure::Parked))?;
    let cores = pool.now.rate(Figure::CpuUs).map(|rate| rate / 1e6);
    writeln!(page, "PoolCores: {}", told(pool.now.value(Figure::CoresMilli).map(|m| m / 1e3)))?;
    writeln!(page, "PoolCoresUsed: {}", told(cores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::sample;

    #[test]
    fn keys_are_apaches_in_its_order() {
        let letterhead = Letterhead { name: "example.org", via: "192.0.2.2", signature: "" };
        let page = render(&sample(), &letterhead);
        // The keys of apache2 2.4.71's own page with event and ExtendedStatus On.
        let keys = "ServerVersion ServerMPM Server_Built CurrentTime RestartTime \
            ParentServerConfigGeneration ParentServerMPMGeneration ServerUptimeSeconds \
            ServerUptime Load1 Load5 Load15 Total_Accesses Total_kBytes Total_Duration CPUUser \
            CPUSystem CPUChildrenUser CPUChildrenSystem CPULoad Uptime ReqPerSec BytesPerSec \
            BytesPerReq DurationPerReq BusyWorkers GracefulWorkers IdleWorkers Processes Stopping \
            ConnsTotal ConnsAsyncWaitIO ConnsAsyncWriting ConnsAsyncKeepAlive ConnsAsyncClosing \
            Scoreboard";
        let found: Vec<String> = page
            .lines()
            .skip(1)
            .map(|line| line.split(':').next().unwrap_or_default().replace(' ', "_"))
            .collect();
        assert_eq!(found.join(" "), keys.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(page.starts_with("example.org\nServerVersion: Apache/2.4.71 (Evenkeel)\n"));
        assert!(page.contains("\nCPUUser: .03\nCPUSystem: .5\nCPUChildrenUser: 0\n"), "{page}");
        assert!(page.contains("\nCPULoad: 1.53\nUptime: 100\nReqPerSec: 13\n"), "{page}");
        assert!(page.contains("\nBytesPerReq: 7876.92\nDurationPerReq: .769231\n"), "{page}");
        assert!(page.ends_with("\nScoreboard: W__G....\n"));
    }

    #[test]
    fn our_keys_stand_behind_apaches_and_say_what_is_unknown() {
        let letterhead = Letterhead { name: "x", via: "", signature: "" };
        let moments: Vec<_> = (1..=10).map(crate::pool::tests::second).collect();
        let apaches = render(&sample(), &letterhead);
        for (pool, told) in [
            (Pool::new(&moments, 10_500_000), "PoolLimit: cpu\nPoolReqPerSec: 98\n"),
            (Pool::default(), "PoolLimit: unknown\nPoolReqPerSec: unknown\n"),
        ] {
            let sample =
                Snapshot { pool: Some(pool), compressed_form_bytes: 512, tunnels: 2, ..sample() };
            let page = render(&sample, &letterhead);
            let ours = page.strip_prefix(&apaches).unwrap();
            assert!(ours.ends_with("\nCompressedFormBytes: 512\nTunnels: 2\n"), "{ours}");
            assert!(ours.starts_with(told), "{ours}");
            assert!(ours.lines().all(|line| line.split(": ").count() == 2), "{ours}");
        }
    }

    #[test]
    fn without_extended_status_there_are_no_totals() {
        let mut snapshot = sample();
        snapshot.facts.extended = false;
        snapshot.facts.asynchronous = false;
        let page = render(&snapshot, &Letterhead { name: "x", via: "", signature: "" });
        assert!(page.contains("Load15: 2.00\nBusyWorkers: 1\n"), "{page}");
        assert!(page.contains("IdleWorkers: 2\nScoreboard: "), "{page}");
    }

    #[test]
    fn an_idle_cpu_has_no_load_and_a_long_scoreboard_is_cut() {
        let mut snapshot = sample();
        snapshot.cpu = crate::snapshot::Cpu::default();
        snapshot.open_slots = 200_000;
        let page = render(&snapshot, &Letterhead { name: "x", via: "", signature: "" });
        assert!(!page.contains("CPULoad"));
        assert!(page.lines().all(|line| line.len() < 65_536));
    }
}
