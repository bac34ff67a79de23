//! TLS without sockets: certificates and policies become rustls configurations, a ClientHello
//! chooses among the virtual hosts, and a [`Session`] turns the bytes of a socket into the bytes of
//! a client and back.
//!
//! # Sessions
//!
//! A transport drives a session like this:
//!
//! 1. [`Session::accept`] with the [`Door`] of the local address (one `Arc` for all its
//!    connections). A new session has no memory beyond its own size.
//! 2. Whatever the socket delivers goes to [`Session::receive`], which takes all of it. It appends
//!    plaintext to one buffer and bytes for the client to an [`Outgoing`], both of which may belong
//!    to the thread. The transport sends the [`Outgoing`] after every call, before it waits,
//!    whatever the result is. [`Progress::Established`] comes once; plaintext may come with it.
//!    [`Session::take_effort`] then says what the turn has to pay for the handshake.
//!    [`Progress::Due`] announces a [`Step`] that takes milliseconds: [`Session::take_step`], then
//!    [`Step::run`] in a thread that may be kept busy, then [`Session::finish_step`].
//! 3. [`Session::send`] seals all that it is given. How much to seal ahead of the socket is the
//!    transport's decision; what the socket does not take moves to the connection with
//!    [`Outgoing::take_rest`].
//! 4. Before `shutdown`, [`Session::close`] appends `close_notify`. It does so once.
//! 5. A session may be parked whenever the [`Outgoing`] is empty. It holds no buffer unless
//!    [`Session::has_partial`].
//!
//! A proxy is a client itself: a [`Connector`] makes the [`ServerSession`] of each connection to a
//! server.
//!
//! A [`Failure`] ends the session: the transport sends the [`Outgoing`] (it has the alert), writes
//! [`Failure::notice`] to the error log and closes; for [`Kind::PlainHttp`] it first answers 400 in
//! clear text. A client that closes the socket without `close_notify` has cut the stream off: that
//! is an end between requests, and an error within one.

mod any_server;
mod cache;
mod certificate;
mod ciphers;
mod clients;
mod connector;
mod facts;
mod failure;
mod host;
mod identity;
mod outgoing;
mod pem;
mod protocols;
mod secrets;
mod servers;
mod session;
mod suites;
#[cfg(test)]
mod testing;
mod variables;

pub use any_server::{AnyServer, trusting_client};
pub use cache::Cache;
pub use certificate::key_bits;
pub use ciphers::{Invalid, Selection, parse as parse_ciphers, parse_new as parse_new_ciphers};
pub use clients::{ClientSettings, Demand, Revocation, Verdict};
pub use connector::{Connector, ConnectorSettings, ServerSession};
pub use facts::Facts;
pub use failure::{Failure, Kind};
pub use host::{Door, Hello, Host, Protocols, Resumption, Settings};
pub use identity::{
    AskPassphrase, Identity, Remark, certificates, has_key, identities, private_key,
};
pub use outgoing::Outgoing;
pub use pem::{Block, Damaged, blocks as pem_blocks, write as write_pem};
pub use protocols::Versions;
pub use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
pub use secrets::{SECRETS_WORDS, Secrets, Words};
pub use servers::{NameCheck, PeerCheck, PeerFault, ServerSettings, ServerTrust};
pub use session::{Progress, RECORD, Session, Step, StepDone};
pub use suites::Suite;
