//! Compares measured latencies with those of a server that stalls now and then and records when
//! each response left it.

use super::bench;
use evenkeel_sys::clock;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the server stalls, and in which period. A full-size run has 1 s of every 10 s.
const STALL_NS: u64 = 50_000_000;
const PERIOD_NS: u64 = 500_000_000;
const RATE: u64 = 500;

/// When a request arrived and when its response left, in seconds of one clock.
struct Note {
    arrived_s: f64,
    left_s: f64,
}

/// Serves one connection after another and one request after another, and records the times. It
/// stalls in the first part of each period.
fn stalling(notes: Arc<Mutex<Vec<Note>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let begun_ns = clock::monotonic_ns();
            let mut lines = BufReader::new(&stream).lines();
            while let Some(Ok(line)) = lines.next() {
                if !line.is_empty() {
                    continue;
                }
                let arrived_s = clock::monotonic_ns() as f64 / 1e9;
                let into_ns = (clock::monotonic_ns() - begun_ns) % PERIOD_NS;
                std::thread::sleep(Duration::from_nanos(STALL_NS.saturating_sub(into_ns)));
                let left_s = clock::monotonic_ns() as f64 / 1e9;
                notes.lock().unwrap().push(Note { arrived_s, left_s });
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                if (&stream).write_all(answer).is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// With one connection the n-th response belongs to the n-th arrival. The run began at the latest
/// one interval before the first request arrived, so the server's records give the least that each
/// response can have taken, whatever else the machine does.
#[test]
fn an_open_loop_does_not_hide_a_stalled_server() {
    let notes = Arc::default();
    let address = stalling(Arc::clone(&notes));
    let said = bench(&format!("--csv -n 600 -c 1 -q {RATE} --even http://{address}/"));
    let (notes, interval_s) = (notes.lock().unwrap(), 1.0 / RATE as f64);
    let lines: Vec<&str> = said.out.lines().skip(1).collect();
    assert_eq!((lines.len(), notes.len()), (600, 600));
    let first_s = notes[0].arrived_s;
    let (mut responses, mut least, mut services) = (Vec::new(), Vec::new(), Vec::new());
    for (number, line) in lines.iter().enumerate() {
        let column = |at: usize| -> f64 { line.split(',').nth(at).unwrap().parse().unwrap() };
        let (intended_s, response_s, service_s) = (column(1), column(2), column(3));
        assert!((intended_s - (number + 1) as f64 * interval_s).abs() < 1e-8);
        let least_s = notes[number].left_s - first_s - number as f64 * interval_s;
        assert!(response_s > least_s - 1e-8, "{number}: {response_s} {least_s}");
        assert!(response_s >= service_s);
        responses.push(response_s);
        least.push(least_s);
        services.push(service_s);
    }
    let slow = |times: &[f64]| times.iter().filter(|time| **time > 0.010).count();
    assert!(slow(&least) > 0 && slow(&responses) >= slow(&least));
    assert!(slow(&services) < slow(&responses), "{} {}", slow(&services), slow(&responses));
}
