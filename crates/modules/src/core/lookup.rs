//! Looks up the names that the rules of a request ask for. The system's resolver blocks, so each
//! look-up has a thread of its own. The number of look-ups and the time of each are bounded: a
//! resolver that hangs holds up no request that does not need it.

use evenkeel_message::{HostNames, MayWait, Request};
use evenkeel_sys::resolve;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Look-ups at one time in this process.
static SLOTS: Semaphore = Semaphore::const_new(32);

/// How long an answer is waited for: the system's resolver gives up after 10 s with one server
/// and its default of two attempts (resolv.conf(5)).
const PATIENCE: Duration = Duration::from_secs(30);

/// What must be looked up for a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WantedNames {
    /// The client's name (HostnameLookups On).
    pub client: bool,
    /// Whether the client's name leads back to the client (Require host, Allow from).
    pub verify: bool,
    /// The client's name only if it leads back to the client (HostnameLookups Double).
    pub only_verified: bool,
    /// The addresses of these names.
    pub names: Vec<Box<str>>,
}

impl WantedNames {
    /// Whether there is nothing to look up.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Self { client, verify, only_verified, names } = self;
        !(client | verify | only_verified) && names.is_empty()
    }

    /// What of it is not known yet.
    #[must_use]
    pub fn unless_known(mut self, known: &HostNames) -> Self {
        self.client &= !known.has_asked_client;
        self.verify &= !known.has_verified;
        self.only_verified &= !known.has_verified;
        self.names.retain(|name| known.addresses.iter().all(|(other, _)| other != name));
        self
    }
}

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

    #[test]
    fn what_is_known_is_not_asked_for_again() {
        let all = || WantedNames {
            client: true,
            verify: true,
            only_verified: true,
            names: vec!["a.test".into(), "b.test".into()],
        };
        assert_eq!(all().unless_known(&HostNames::default()), all());
        let addresses = vec![("a.test".into(), Vec::new())];
        let known = HostNames { has_asked_client: true, addresses, ..HostNames::default() };
        let rest = all().unless_known(&known);
        assert_eq!(rest, WantedNames { client: false, names: vec!["b.test".into()], ..all() });
        // What was asked for in vain is known to be unknown.
        assert_eq!(known.addresses_of("a.test"), None);
        let known = HostNames { has_verified: true, ..known };
        let rest = WantedNames { names: Vec::new(), ..all() }.unless_known(&known);
        assert!(rest.is_nothing());
    }
}
