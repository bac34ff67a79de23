//! The status page for people: mod_status's HTML, table for table, so that programs that read
//! Apache's page can read this one. What a client chose is escaped as in the log first and then for
//! HTML, as in Apache.

use crate::number::{bytes, duration, general, general3, kilobytes};
use crate::page::Letterhead;
use crate::snapshot::{Child, Counts, Snapshot, Worker};
use crate::view::{Form, View};
use crate::{clock, draw};
use evenkeel_scoreboard::SlotState;
use std::fmt::{Result, Write};

/// The letters in a line of the scoreboard (mod_status.c: STATUS_MAXLINE).
const LETTERS_A_LINE: usize = 64;

pub(crate) fn render(snapshot: &Snapshot, letterhead: &Letterhead<'_>, view: View) -> String {
    let mut page = String::with_capacity(8_192);
    // Writing to a string cannot fail.
    let _ = write_page(snapshot, letterhead, view, &mut page);
    page
}

fn write_page(
    snapshot: &Snapshot,
    letterhead: &Letterhead<'_>,
    view: View,
    page: &mut String,
) -> Result {
    write_head(snapshot, letterhead, page)?;
    if snapshot.facts.extended {
        write_totals(snapshot, page)?;
    }
    let counts = snapshot.counts();
    write!(
        page,
        "<dt>{} requests currently being processed, {} workers gracefully restarting, {} idle \
         workers</dt>\n</dl>",
        counts.busy, counts.graceful, counts.idle
    )?;
    if snapshot.facts.asynchronous {
        write_connections(snapshot, counts, page)?;
    }
    write_scoreboard(snapshot, page)?;
    if let Some(pool) = &snapshot.pool {
        draw::write(snapshot, pool, view.refresh_s.is_none(), page)?;
    }
    for application in &snapshot.applications {
        application.write_html(snapshot.facts.extended, page)?;
    }
    for listener in &snapshot.listeners {
        writeln!(page, "<p>{}</p>", escape(&printable(&listener.sentence())))?;
    }
    match (snapshot.facts.extended, view.form) {
        (false, _) => write_pids(snapshot, page)?,
        (true, Form::Paragraphs) => write_paragraphs(snapshot, page)?,
        (true, _) => write_table(snapshot, page)?,
    }
    writeln!(page, "{}</body></html>", letterhead.signature)
}

fn write_head(snapshot: &Snapshot, letterhead: &Letterhead<'_>, page: &mut String) -> Result {
    let facts = &snapshot.facts;
    let [load1, load5, load15] = snapshot.load;
    write!(
        page,
        "<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \
         \"http://www.w3.org/TR/html4/strict.dtd\">\n\
         <html><head>\n<title>Apache Status</title>\n</head><body>\n\
         <h1>Apache Server Status for {} (via {})</h1>\n\n",
        escape(letterhead.name),
        escape(letterhead.via)
    )?;
    writeln!(page, "<dl><dt>Server Version: {}</dt>", escape(&facts.version))?;
    writeln!(page, "<dt>Server MPM: {}</dt>", facts.mpm)?;
    writeln!(page, "<dt>Server Built: {}\n</dt></dl><hr /><dl>", facts.built)?;
    writeln!(page, "<dt>Current Time: {}</dt>", clock::text(snapshot.now_us))?;
    writeln!(page, "<dt>Restart Time: {}</dt>", clock::text(snapshot.restart_us))?;
    let generation = snapshot.config_generation;
    writeln!(page, "<dt>Parent Server Config. Generation: {generation}</dt>")?;
    writeln!(page, "<dt>Parent Server MPM Generation: {}</dt>", snapshot.mpm_generation)?;
    writeln!(page, "<dt>Server uptime: {}</dt>", duration(snapshot.uptime_s()))?;
    writeln!(page, "<dt>Server load: {load1:.2} {load5:.2} {load15:.2}</dt>")
}

fn write_totals(snapshot: &Snapshot, page: &mut String) -> Result {
    let uptime = snapshot.uptime_s();
    let cpu = snapshot.cpu;
    let sent = snapshot.bytes / 1024;
    writeln!(
        page,
        "<dt>Total accesses: {} - Total Traffic: {} - Total Duration: {}</dt>",
        snapshot.accesses,
        kilobytes(sent),
        snapshot.duration_ms
    )?;
    write!(
        page,
        "<dt>CPU Usage: u{} s{} cu{} cs{}",
        general(cpu.user),
        general(cpu.system),
        general(cpu.children_user),
        general(cpu.children_system)
    )?;
    if cpu.total() > 0.0 && uptime > 0 {
        let load = cpu.total() / uptime as f64 * 100.0;
        write!(page, " - {}% CPU load", general3(load))?;
    }
    write!(page, "</dt>\n<dt>")?;
    let all = 1024.0 * sent as f64;
    if uptime > 0 {
        let rate = snapshot.accesses as f64 / uptime as f64;
        let sent_a_second = bytes((all / uptime as f64) as u64);
        write!(page, "{} requests/sec - {sent_a_second}/second", general3(rate))?;
    }
    if snapshot.accesses > 0 {
        let between = if uptime > 0 { " - " } else { "" };
        let accesses = snapshot.accesses as f64;
        write!(
            page,
            "{between}{}/request - {} ms/request",
            bytes((all / accesses) as u64),
            general(snapshot.duration_ms as f64 / accesses)
        )?;
    }
    writeln!(page, "</dt>")
}

/// The table of connections, for asynchronous models.
fn write_connections(snapshot: &Snapshot, counts: Counts, page: &mut String) -> Result {
    page.write_str(concat!(
        "\n\n<table rules=\"all\" cellpadding=\"1%\">\n",
        "<tr><th rowspan=\"2\">Slot</th><th rowspan=\"2\">PID</th>",
        "<th rowspan=\"2\">Stopping</th><th colspan=\"2\">Connections</th>\n",
        "<th colspan=\"3\">Threads</th><th colspan=\"4\">Async connections</th></tr>\n",
        "<tr><th>total</th><th>accepting</th><th>busy</th><th>graceful</th><th>idle</th>",
        "<th>wait-io</th><th>writing</th><th>keep-alive</th><th>closing</th></tr>\n",
    ))?;
    for child in &snapshot.children {
        let stopping = if child.stopping { "yes" } else { "no" };
        let old = if child.generation == snapshot.mpm_generation { "" } else { " (old gen)" };
        let accepting = if child.accepting { "yes" } else { "no" };
        write!(page, "<tr><td>{}</td><td>{}</td>", child.slot, child.pid)?;
        write!(page, "<td>{stopping}{old}</td>")?;
        write!(page, "<td>{}</td><td>{accepting}</td>", child.connections.total)?;
        write_counts(child.counts(), &child.connections, page)?;
    }
    let sum = snapshot.connections();
    let (processes, stopping) = (snapshot.children.len(), snapshot.stopping());
    write!(page, "<tr><td>Sum</td><td>{processes}</td><td>{stopping}</td>")?;
    write!(page, "<td>{}</td><td>&nbsp;</td>", sum.total)?;
    write_counts(counts, &sum, page)?;
    page.write_str("</table>\n")
}

fn write_counts(
    counts: Counts,
    connections: &crate::snapshot::Connections,
    page: &mut String,
) -> Result {
    write!(page, "<td>{}</td><td>{}</td><td>{}</td>", counts.busy, counts.graceful, counts.idle)?;
    writeln!(
        page,
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        connections.waiting, connections.writing, connections.keep_alive, connections.closing
    )
}

fn write_scoreboard(snapshot: &Snapshot, page: &mut String) -> Result {
    page.write_str("<pre>")?;
    for (at, letter) in snapshot.letters().chars().enumerate() {
        page.write_char(letter)?;
        if at % LETTERS_A_LINE == LETTERS_A_LINE - 1 {
            page.write_char('\n')?;
        }
    }
    page.write_str("</pre>\n<p>Scoreboard Key:<br />\n")?;
    // Three states in a line, in mod_status's order.
    let explained = [
        (SlotState::Ready, ", \n"),
        (SlotState::Starting, ", \n"),
        (SlotState::Reading, ",<br />\n"),
        (SlotState::Writing, ", \n"),
        (SlotState::KeepAlive, ", \n"),
        (SlotState::Dns, ",<br />\n"),
        (SlotState::Closing, ", \n"),
        (SlotState::Logging, ", \n"),
        (SlotState::Graceful, ",<br /> \n"),
        (SlotState::IdleCleanup, ", \n"),
        (SlotState::Open, "<br />\n"),
    ];
    for (state, end) in explained {
        write!(page, "\"<b><code>{}</code></b>\" {}{end}", state.letter(), state.text())?;
    }
    page.write_str("</p>\n")
}

/// Without ExtendedStatus: the process of each letter, three in a line.
fn write_pids(snapshot: &Snapshot, page: &mut String) -> Result {
    page.write_str("PID Key: <br />\n<pre>\n")?;
    let mut written = 0;
    for child in &snapshot.children {
        for worker in &child.workers {
            let state = child.shown(worker.state);
            if state == SlotState::Open {
                continue;
            }
            write!(page, "   {} in state: {} ", child.pid, state.letter())?;
            written += 1;
            page.write_str(if written % 3 == 0 { "\n" } else { "," })?;
        }
    }
    page.write_str(concat!(
        "\n</pre>\n<hr />To obtain a full report with current status information you need to use ",
        "the <code>ExtendedStatus On</code> directive.\n",
    ))
}

/// The workers that have something to show, with their children.
fn shown(snapshot: &Snapshot) -> impl Iterator<Item = (&Child, &Worker, SlotState)> {
    snapshot.children.iter().flat_map(|child| {
        child.workers.iter().map(move |worker| (child, worker, child.shown(worker.state))).filter(
            |(_, worker, state)| {
                let idle =
                    matches!(state, SlotState::Ready | SlotState::Open | SlotState::Starting);
                !(idle && worker.accesses.iter().all(|count| *count == 0))
            },
        )
    })
}

fn write_table(snapshot: &Snapshot, page: &mut String) -> Result {
    page.write_str(concat!(
        "\n\n<table border=\"0\"><tr><th>Srv</th><th>PID</th><th>Acc</th><th>M</th><th>CPU\n",
        "</th><th>SS</th><th>Req</th><th>Dur</th><th>Conn</th><th>Child</th><th>Slot</th>",
        "<th>Client</th><th>Protocol</th><th>VHost</th><th>Request</th></tr>\n\n",
    ))?;
    for (child, worker, state) in shown(snapshot) {
        let [connection, own, slot] = worker.accesses;
        let bold = !matches!(
            state,
            SlotState::Ready | SlotState::Open | SlotState::Graceful | SlotState::IdleCleanup
        );
        let letter = state.letter();
        let mode = if bold { format!("<b>{letter}</b>") } else { letter.to_string() };
        write!(page, "<tr><td><b>{}-{}</b></td>", child.slot, child.generation)?;
        match state {
            SlotState::Open => page.write_str("<td>-</td>")?,
            _ => write!(page, "<td>{}</td>", child.pid)?,
        }
        write!(page, "<td>{connection}/{own}/{slot}</td><td>{mode}\n</td>")?;
        write!(
            page,
            "<td>{:.2}</td><td>{}</td><td>{}</td><td>{}</td>",
            worker.cpu,
            since(snapshot, worker),
            worker.request_ms,
            worker.duration_ms
        )?;
        let [connection, own, slot] = worker.bytes.map(|bytes| bytes as f64);
        let mega = 1_048_576.0;
        write!(
            page,
            "<td>{:.1}</td><td>{:.2}</td><td>{:.2}\n</td>",
            connection / 1024.0,
            own / mega,
            slot / mega
        )?;
        write!(
            page,
            "<td>{}</td><td>{}</td><td nowrap>{}</td><td nowrap>{}</td></tr>\n\n",
            escape(&worker.client),
            escape(&worker.protocol),
            escape(&worker.vhost),
            escape(&printable(&worker.request))
        )?;
    }
    page.write_str(LEGEND)
}

fn write_paragraphs(snapshot: &Snapshot, page: &mut String) -> Result {
    page.write_str("<hr /><h2>Server Details</h2>\n\n")?;
    for (child, worker, state) in shown(snapshot) {
        let [connection, own, slot] = worker.accesses;
        write!(page, "<b>Server {}-{}</b> (", child.slot, child.generation)?;
        match state {
            SlotState::Open => page.write_str("-")?,
            _ => write!(page, "{}", child.pid)?,
        }
        write!(page, "): {connection}|{own}|{slot} [{}] ", word(state))?;
        writeln!(page, "u{} s0 cu0 cs0", general(worker.cpu))?;
        let [connection, own, slot] = worker.bytes.map(bytes);
        writeln!(
            page,
            " {} {} {}({connection}|{own}|{slot})",
            since(snapshot, worker),
            worker.request_ms,
            worker.duration_ms
        )?;
        write!(
            page,
            " <i>{} {{{}}}</i> <i>({})</i> <b>[{}]</b><br />\n\n",
            escape(&worker.client),
            escape(&printable(&worker.request)),
            escape(&worker.protocol),
            escape(&worker.vhost)
        )?;
    }
    Ok(())
}

/// The seconds since the worker's last request began.
fn since(snapshot: &Snapshot, worker: &Worker) -> u64 {
    match worker.start_us {
        0 => 0,
        start_us => snapshot.now_us.saturating_sub(start_us) / 1_000_000,
    }
}

/// The name of a state on the page without tables.
const fn word(state: SlotState) -> &'static str {
    match state {
        SlotState::Ready => "Ready",
        SlotState::Starting => "Starting",
        SlotState::Reading => "<b>Read</b>",
        SlotState::Writing => "<b>Write</b>",
        SlotState::KeepAlive => "<b>Keepalive</b>",
        SlotState::Logging => "<b>Logging</b>",
        SlotState::Dns => "<b>DNS lookup</b>",
        SlotState::Closing => "<b>Closing</b>",
        SlotState::Open => "Dead",
        SlotState::Graceful => "Graceful",
        SlotState::IdleCleanup => "Dying",
    }
}

/// Escapes text between tags.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes what is not printable ASCII in a request line, as in the access log.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

/// The meaning of the table's columns.
const LEGEND: &str = "</table>\n <hr /> <table>
 <tr><th>Srv</th><td>Child Server number - generation</td></tr>
 <tr><th>PID</th><td>OS process ID</td></tr>
 <tr><th>Acc</th><td>Number of accesses this connection / this child / this slot</td></tr>
 <tr><th>M</th><td>Mode of operation</td></tr>
<tr><th>CPU</th><td>CPU usage, number of seconds</td></tr>
<tr><th>SS</th><td>Seconds since beginning of most recent request</td></tr>
 <tr><th>Req</th><td>Milliseconds required to process most recent request</td></tr>
 <tr><th>Dur</th><td>Sum of milliseconds required to process all requests</td></tr>
 <tr><th>Conn</th><td>Kilobytes transferred this connection</td></tr>
 <tr><th>Child</th><td>Megabytes transferred this child</td></tr>
 <tr><th>Slot</th><td>Total megabytes transferred this slot</td></tr>
 </table>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::sample;

    fn page(snapshot: &Snapshot, table: bool) -> String {
        let letterhead =
            Letterhead { name: "a<b", via: "192.0.2.2", signature: "<hr />\nsigned\n" };
        let form = if table { Form::Table } else { Form::Paragraphs };
        render(snapshot, &letterhead, View { form, ..View::default() })
    }

    /// The page without the parts that depend on the machine's time zone.
    fn golden(page: &str) -> String {
        let line = |line: &str| match line.split_once("Time: ") {
            Some((before, _)) => format!("{before}Time: -"),
            None => line.to_owned(),
        };
        page.lines().map(|text| line(text) + "\n").collect()
    }

    #[test]
    fn the_page_with_tables_is_the_golden_one() {
        assert_eq!(golden(&page(&sample(), true)), include_str!("../tests/golden/table.html"));
    }

    #[test]
    fn the_page_without_tables_is_the_golden_one() {
        let page = page(&sample(), false);
        assert_eq!(golden(&page), include_str!("../tests/golden/paragraphs.html"));
    }

    #[test]
    fn without_extended_status_the_processes_are_listed() {
        let mut snapshot = sample();
        snapshot.facts.extended = false;
        snapshot.facts.asynchronous = false;
        assert_eq!(golden(&page(&snapshot, true)), include_str!("../tests/golden/plain.html"));
    }

    #[test]
    fn long_scoreboards_are_broken_into_lines() {
        let mut snapshot = sample();
        snapshot.open_slots = 64 + 56;
        let page = page(&snapshot, true);
        let board = page.split("<pre>").nth(1).unwrap().split("</pre>").next().unwrap();
        assert_eq!(board.lines().map(str::len).collect::<Vec<_>>(), [64, 61]);
    }
}
