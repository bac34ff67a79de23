//! Looking up names: what the rules of a request want to know comes in, what the resolver says
//! goes out. The system's resolver blocks, so each look-up has a thread of its own; their number
//! and the time that is waited for them are bounded, so that a resolver that hangs holds up no
//! request that does not need it.

use evenkeel_message::{HostNames, Request};
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
}

/// Looks up what is wanted and puts it into the request. What cannot be found stays unknown.
pub async fn look_up_names(request: &mut Request, wanted: WantedNames) {
    let client = request.peer.client_ip();
    let found = run(move || ask(client, wanted)).await;
    request.names = Some(Box::new(found.unwrap_or_default()));
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

fn ask(client: IpAddr, wanted: WantedNames) -> HostNames {
    let mut found = HostNames::default();
    if wanted.client || wanted.verify || wanted.only_verified {
        let name = resolve::name_of(client).ok().flatten();
        found.client = name.map(|name| name.to_ascii_lowercase().into());
    }
    if wanted.verify
        && let Some(name) = &found.client
    {
        found.verified = resolve::addresses_of(name).is_ok_and(|list| list.contains(&client));
    }
    for name in wanted.names {
        if let Ok(addresses) = resolve::addresses_of(&name) {
            found.addresses.push((name, addresses));
        }
    }
    found
}
