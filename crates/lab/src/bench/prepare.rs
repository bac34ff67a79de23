//! Makes a plan from the options: looks up names, tries the server once and encodes the request. It
//! also decides whether a load may be sent to that address at all.

use super::options::{Family, Message, Options, Output};
use super::{Complaint, usage};
use crate::load::{
    Bounds, Keep, Plan, Request, Scheme, Target, Timeouts, Trust, Wishes, check_descriptors,
    check_owner, put_reachable_first,
};
use crate::request::{Draft, basic_credentials};
use evenkeel_sys::connect::{Local, Remote};
use evenkeel_sys::process;
use std::sync::Arc;

/// What is ready to run.
pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) request: Arc<Request>,
}

/// Prepares a run.
pub(super) fn prepare(options: &Options) -> Result<Prepared, Complaint> {
    let request = encode(options).map_err(usage)?;
    let mut remotes = remotes(options)?;
    check_address(options, &remotes)?;
    check_descriptors(options.clients, 0).map_err(Complaint::plain)?;
    let wishes =
        Wishes { verify: !options.insecure, full: options.full_handshakes, ..Wishes::default() };
    let trust = Trust::of(&options.url, &wishes).map_err(Complaint::plain)?;
    put_reachable_first(&mut remotes, trust.as_ref(), options.timeout).map_err(Complaint::plain)?;
    let cores = process::usable_cores();
    let plan = Plan {
        remotes,
        local: Local::default(),
        trust,
        threads: options.threads.unwrap_or(cores).clamp(1, options.clients.max(1) as usize),
        clients: options.clients,
        stretches: options.shape.as_ref().map_or_else(Vec::new, |shape| shape.stretches.clone()),
        pace: options.pace.clone(),
        keep: if options.keep_alive { Keep::Kept } else { Keep::Once },
        bounds: Bounds { requests: options.requests, time: options.time, at_failure: false },
        timeouts: Timeouts { connect: options.timeout, answer: options.timeout },
        seed: options.seed,
        keep_exchanges: options.output == Output::Csv,
        hear: false,
    };
    Ok(Prepared { plan, request: Arc::new(request) })
}

fn encode(options: &Options) -> Result<Request, String> {
    let Message { method, fields, cookies, accept, content_type, host, auth, proxy_auth, body } =
        &options.message;
    let usual = if body.is_some() { "POST" } else { "GET" };
    let mut draft = Draft::new(method.as_deref().unwrap_or(usual), &options.url);
    let agent = concat!("evenkeel-bench/", env!("CARGO_PKG_VERSION"));
    draft = draft.with_field("User-Agent", agent)?;
    if options.proxy.is_some() {
        draft = draft.through_proxy(&options.url);
    }
    if let Some(host) = host {
        draft = draft.with_field("Host", host)?;
    }
    if let Some(accept) = accept {
        draft = draft.with_field("Accept", accept)?;
    }
    if let Some(auth) = auth {
        draft = draft.with_field("Authorization", basic_credentials(auth))?;
    }
    if let Some(auth) = proxy_auth {
        draft = draft.with_field("Proxy-Authorization", basic_credentials(auth))?;
    }
    if !cookies.is_empty() {
        draft = draft.with_field("Cookie", cookies.join("; "))?;
    }
    if let Some(body) = body {
        let kind = content_type.as_deref().unwrap_or("application/x-www-form-urlencoded");
        draft = draft.with_field("Content-Type", kind)?.with_body(body.clone());
    } else if let Some(kind) = content_type {
        draft = draft.with_field("Content-Type", kind)?;
    }
    if !options.keep_alive {
        draft = draft.closing();
    }
    // A typed field replaces a default one, but not other typed ones.
    for (number, (name, value)) in fields.iter().enumerate() {
        let is_first =
            fields.iter().take(number).all(|(other, _)| !other.eq_ignore_ascii_case(name));
        draft = if is_first {
            draft.with_field(name, value)?
        } else {
            draft.with_another_field(name, value)?
        };
    }
    draft.encode()
}

/// The addresses that the clients may connect to.
fn remotes(options: &Options) -> Result<Vec<Remote>, Complaint> {
    let next = options.proxy.as_ref().unwrap_or(&options.url);
    if next.scheme == Scheme::Https && options.proxy.is_some() {
        return Err(usage("a proxy is spoken to in clear: http://HOST:PORT"));
    }
    if options.url.scheme == Scheme::Https && options.proxy.is_some() {
        return Err(usage("https through a proxy needs CONNECT, which bench does not speak"));
    }
    let found = next.resolve(options.unix_socket.as_deref()).map_err(Complaint::plain)?;
    let wanted = |remote: &Remote| match (remote, options.family) {
        (Remote::Internet(address), Family::V4) => address.is_ipv4(),
        (Remote::Internet(address), Family::V6) => address.is_ipv6(),
        _ => true,
    };
    let remotes: Vec<Remote> = found.into_iter().filter(wanted).collect();
    if remotes.is_empty() {
        let version = if options.family == Family::V4 { 4 } else { 6 };
        return Err(Complaint::plain(format!("{}: has no IPv{version} address", next.host)));
    }
    Ok(remotes)
}

/// Checks whether a load may be sent there, including what a proxy is asked for.
fn check_address(options: &Options, remotes: &[Remote]) -> Result<(), Complaint> {
    let is_here = Target::is_loopback(remotes)
        && (options.proxy.is_none()
            || options.url.resolve(None).is_ok_and(|found| Target::is_loopback(&found)));
    check_owner(&options.url.host, is_here, options.is_my_server).map_err(|text| Complaint {
        text,
        status: 2,
        hint: false,
    })
}
