//! Looks up the names that the rules of a request ask for. The system's resolver blocks, so each
//! look-up has a thread of its own. The number of look-ups and the time of each are bounded: a
//! resolver that hangs holds up no request that does not need it.

use evenkeel_message::{HostNames, MayWait, Request, WantedNames};
use evenkeel_sys::resolve;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Look-ups at one time in this process.
static SLOTS: Semaphore = Semaphore::const_new(32);

/// How long an answer is waited for: the system's resolver gives up after 10 s with one server
/// and its default of two attempts (resolv.conf(5)).
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks up what is wanted and adds it to what the request knows. What cannot be found stays
/// unknown, and is not asked for again.
pub async fn look_up_names(request: &mut Request, wanted: WantedNames, _: &MayWait) {
    let client = request.peer.client_ip();
    let mut names = request.names.take().unwrap_or_default();
    let mut unknown = names.clone();
    unknown.has_asked_client |= wanted.client || wanted.verify || wanted.only_verified;
    unknown.has_verified |= wanted.verify || wanted.only_verified;
    unknown.addresses.extend(wanted.names.iter().map(|name| (name.clone(), Vec::new())));
    let found = run(move || {
        ask(client, wanted, &mut names);
        names
    });
    request.names = Some(found.await.unwrap_or(unknown));
}

/// Runs a look-up on a thread of its own; none where there is no thread or no answer in time.
async fn run<T: Send + 'static>(look_up: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let answer = async {
        let slot = SLOTS.acquire().await.ok()?;
        let (sender, receiver) = oneshot::channel();
        std::thread::Builder::new()
            .name("resolver".into())
            .spawn(move || {
                // The slot is given back when the resolver has answered, not when nobody waits.
                let _slot = slot;
                let _ = sender.send(look_up());
            })
            .ok()?;
        receiver.await.ok()
    };
    tokio::time::timeout(PATIENCE, answer).await.ok().flatten()
}

fn ask(client: IpAddr, wanted: WantedNames, names: &mut HostNames) {
    if !names.has_asked_client && (wanted.client || wanted.verify || wanted.only_verified) {
        let name = resolve::name_of(client).ok().flatten();
        names.client = name.map(|name| name.to_ascii_lowercase().into());
        names.has_asked_client = true;
    }
    if wanted.verify || wanted.only_verified {
        let leads_back = |name: &str| {
            resolve::addresses_of(name).is_ok_and(|addresses| addresses.contains(&client))
        };
        verify(names, wanted.only_verified, leads_back);
    }
    for name in wanted.names {
        let addresses = resolve::addresses_of(&name).unwrap_or_default();
        names.addresses.push((name, addresses));
    }
}

/// Notes whether the client's name leads back to the client. One that does not is dropped where
/// only verified names count (core.c: ap_get_useragent_host).
fn verify(names: &mut HostNames, only_verified: bool, leads_back: impl Fn(&str) -> bool) {
    names.verified = names.client.as_deref().is_some_and(leads_back);
    names.has_verified = true;
    if only_verified && !names.verified {
        names.client = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_lead_back_is_dropped_where_only_verified_ones_count() {
        let named = || HostNames { client: Some("a.test".into()), ..HostNames::default() };
        for (only_verified, leads_back, stays) in
            [(false, false, true), (true, true, true), (true, false, false)]
        {
            let mut names = named();
            verify(&mut names, only_verified, |_| leads_back);
            assert_eq!((names.verified, names.client.is_some()), (leads_back, stays));
        }
    }
}
