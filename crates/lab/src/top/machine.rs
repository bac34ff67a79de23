//! What a machine does: parses the texts of /proc into counters, and computes shares of time and
//! numbers a second from two readings. Nothing here reads a file.

use evenkeel_monitor::process::load_averages;
use serde::Serialize;
use std::collections::BTreeMap;

/// The texts of a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    /// /proc/stat
    pub(super) stat: String,
    /// /proc/diskstats
    pub(super) diskstats: String,
    /// The names in /sys/block, one in each line: the devices that are not partitions.
    pub(super) block: String,
    /// /proc/net/dev
    pub(super) net_dev: String,
    /// /proc/vmstat
    pub(super) vmstat: String,
    /// /proc/loadavg
    pub(super) loadavg: String,
}

/// Counters since the machine's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    all: [u64; 7],
    cores: BTreeMap<u32, [u64; 7]>,
    interrupts: u64,
    context_switches: u64,
    forks: u64,
    running: u64,
    blocked: u64,
    disks: BTreeMap<String, [u64; 5]>,
    links: BTreeMap<String, [u64; 4]>,
    vm: BTreeMap<&'static str, u64>,
    load: [f64; 3],
}

/// The values that are read from /proc/vmstat. The pages of `pgpgin` and `pgpgout` are actually
/// KiB.
const VM: [&str; 6] = ["pswpin", "pswpout", "pgpgin", "pgpgout", "pgfault", "pgmajfault"];
/// Devices that are built on others or in memory. With them, bytes would be counted twice.
const NOT_DISKS: [&str; 7] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd"];
/// The unit of sectors in /proc/diskstats, whatever the disk's own is.
const SECTOR_BYTES: f64 = 512.0;

/// The activity of a machine between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Machine {
    /// All cores together.
    pub(super) cpu: Shares,
    /// Each core.
    pub(super) cores: Vec<Core>,
    /// Load averages over 1, 5 and 15 minutes.
    pub(super) load: [f64; 3],
    /// The tasks that ran or were ready to run at the second moment.
    pub(super) running: u64,
    /// The tasks that waited for a disk at that moment.
    pub(super) blocked: u64,
    /// The interrupts a second.
    pub(super) interrupts: f64,
    /// The context switches a second.
    pub(super) context_switches: f64,
    /// The new processes and threads a second.
    pub(super) forks: f64,
    pub(super) paging: Paging,
    /// The disks that have been used since the start.
    pub(super) disks: Vec<Disk>,
    /// The network interfaces that have been used.
    pub(super) network: Vec<Link>,
}

/// Shares of time, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Shares {
    /// User time, at any priority.
    pub(super) usr: f64,
    /// System time, without interrupts.
    pub(super) sys: f64,
    /// Idle time.
    pub(super) idl: f64,
    /// Idle time in which a disk was waited for.
    pub(super) wai: f64,
    /// Hardware interrupts.
    pub(super) hiq: f64,
    /// Soft interrupts.
    pub(super) siq: f64,
    /// Time taken by other guests of the same machine.
    pub(super) stl: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Core {
    pub(super) core: u32,
    #[serde(flatten)]
    pub(super) shares: Shares,
}

/// Paging, in numbers a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Paging {
    /// Pages from swap.
    pub(super) swapped_in: f64,
    /// Pages to swap.
    pub(super) swapped_out: f64,
    /// Bytes from block devices.
    pub(super) in_bytes: f64,
    /// Bytes to block devices.
    pub(super) out_bytes: f64,
    /// Page faults of either kind.
    pub(super) faults: f64,
    /// Page faults that waited for a device.
    pub(super) major_faults: f64,
}

/// A disk, in numbers a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) reads: f64,
    pub(super) read_bytes: f64,
    pub(super) writes: f64,
    pub(super) written_bytes: f64,
    /// The percentage of time in which any operation was in progress.
    pub(super) busy: f64,
}

/// A network interface, in numbers a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) received_bytes: f64,
    pub(super) received_packets: f64,
    pub(super) sent_bytes: f64,
    pub(super) sent_packets: f64,
}

impl Shares {
    /// The names, in the order of [`Shares::values`].
    pub(super) const NAMES: [&str; 7] = ["usr", "sys", "idl", "wai", "hiq", "siq", "stl"];

    pub(super) fn values(&self) -> [f64; 7] {
        [self.usr, self.sys, self.idl, self.wai, self.hiq, self.siq, self.stl]
    }

    /// The percentage that is neither idle nor waiting.
    pub(super) fn busy(&self) -> f64 {
        (100.0 - self.idl - self.wai).clamp(0.0, 100.0)
    }

    /// The shares from ticks in the order of [`Shares::NAMES`].
    fn between(before: &[u64; 7], after: &[u64; 7]) -> Self {
        // Idle and waiting time may decrease a little (proc_stat(5)).
        let spent: [f64; 7] = std::array::from_fn(|index| {
            let at = |ticks: &[u64; 7]| ticks.get(index).copied().unwrap_or_default();
            at(after).saturating_sub(at(before)) as f64
        });
        let sum: f64 = spent.iter().sum();
        let [usr, sys, idl, wai, hiq, siq, stl] = spent.map(|ticks| ticks * 100.0 / sum.max(1.0));
        Self { usr, sys, idl, wai, hiq, siq, stl }
    }
}

impl Counters {
    pub(super) fn parse(texts: &Texts) -> Self {
        let mut counters = Self { load: load_averages(&texts.loadavg), ..Self::default() };
        for line in texts.stat.lines() {
            counters.take_stat(line);
        }
        let blocks: Vec<&str> = texts.block.lines().collect();
        let disks = texts.diskstats.lines().filter_map(disk).filter(|(name, counts)| {
            let is_disk = !NOT_DISKS.iter().any(|other| name.starts_with(other));
            is_disk && blocks.contains(&name.as_str()) && counts.iter().any(|count| *count > 0)
        });
        counters.disks = disks.collect();
        let links = texts.net_dev.lines().filter_map(link);
        counters.links = links.filter(|(_, counts)| counts.iter().any(|it| *it > 0)).collect();
        for line in texts.vmstat.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            if let Some(name) = VM.iter().find(|known| **known == name) {
                counters.vm.insert(name, value.trim().parse().unwrap_or_default());
            }
        }
        counters
    }

    fn take_stat(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
        match name {
            "intr" => self.interrupts = number(),
            "ctxt" => self.context_switches = number(),
            "processes" => self.forks = number(),
            "procs_running" => self.running = number(),
            "procs_blocked" => self.blocked = number(),
            _ => {
                let Some(which) = name.strip_prefix("cpu") else { return };
                let [user, nice, sys, idl, wai, hiq, siq, stl] = std::array::from_fn(|_| number());
                let ticks = [user + nice, sys, idl, wai, hiq, siq, stl];
                match which.parse() {
                    Ok(core) => drop(self.cores.insert(core, ticks)),
                    Err(_) => self.all = ticks,
                }
            }
        }
    }
}

/// Name; reads, sectors read, writes, sectors written, milliseconds with any operation in progress
/// (kernel: admin-guide/iostats).
fn disk(line: &str) -> Option<(String, [u64; 5])> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse().ok();
    let counts = [number(3)?, number(5)?, number(7)?, number(9)?, number(12)?];
    Some(((*words.get(2)?).to_owned(), counts))
}

/// Name; bytes and packets received, bytes and packets sent. The heading has no colon.
fn link(line: &str) -> Option<(String, [u64; 4])> {
    let (name, counts) = line.split_once(':')?;
    let words: Vec<&str> = counts.split_ascii_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse().ok();
    Some((name.trim().to_owned(), [number(0)?, number(1)?, number(8)?, number(9)?]))
}

impl Machine {
    /// What happened between two readings that are `seconds` apart.
    pub(super) fn between(before: &Counters, after: &Counters, seconds: f64) -> Self {
        let rate =
            |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds.max(1e-6);
        let vm = |name: &str| {
            let of = |counters: &Counters| counters.vm.get(name).copied().unwrap_or_default();
            rate(of(before), of(after))
        };
        // Something that was not there before cannot be compared.
        let rates = |before: &[u64], after: &[u64]| -> Vec<f64> {
            before.iter().zip(after).map(|(before, after)| rate(*before, *after)).collect()
        };
        let cores = after.cores.iter().filter_map(|(core, ticks)| {
            let shares = Shares::between(before.cores.get(core)?, ticks);
            Some(Core { core: *core, shares })
        });
        let disks = after.disks.iter().filter_map(|(name, counts)| {
            let rates = rates(before.disks.get(name)?, counts);
            let [reads, read, writes, written, busy_ms] = rates.try_into().ok()?;
            Some(Disk {
                name: name.clone(),
                reads,
                read_bytes: read * SECTOR_BYTES,
                writes,
                written_bytes: written * SECTOR_BYTES,
                busy: (busy_ms / 10.0).min(100.0),
            })
        });
        let links = after.links.iter().filter_map(|(name, counts)| {
            let rates = rates(before.links.get(name)?, counts);
            let [received_bytes, received_packets, sent_bytes, sent_packets] =
                rates.try_into().ok()?;
            let name = name.clone();
            Some(Link { name, received_bytes, received_packets, sent_bytes, sent_packets })
        });
        Self {
            cpu: Shares::between(&before.all, &after.all),
            cores: cores.collect(),
            load: after.load,
            running: after.running,
            blocked: after.blocked,
            interrupts: rate(before.interrupts, after.interrupts),
            context_switches: rate(before.context_switches, after.context_switches),
            forks: rate(before.forks, after.forks),
            paging: Paging {
                swapped_in: vm("pswpin"),
                swapped_out: vm("pswpout"),
                in_bytes: vm("pgpgin") * 1024.0,
                out_bytes: vm("pgpgout") * 1024.0,
                faults: vm("pgfault"),
                major_faults: vm("pgmajfault"),
            },
            disks: disks.collect(),
            network: links.collect(),
        }
    }

    /// The bytes received and sent over the network, without what never leaves the machine.
    pub(super) fn network_bytes(&self) -> (f64, f64) {
        let outside = self.network.iter().filter(|link| link.name != "lo");
        outside.fold((0.0, 0.0), |(received, sent), link| {
            (received + link.received_bytes, sent + link.sent_bytes)
        })
    }
}
