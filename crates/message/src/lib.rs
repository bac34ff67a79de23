//! The types that all rooms share: requests, responses, their fields and bodies, what one phase of
//! the pipeline hands to the next, and notices to the administrator. Nothing here reads a socket, a
//! file or a clock.

mod address;
mod allowance;
mod body;
mod conditional;
mod date;
mod fields;
mod file_name;
mod filter_position;
mod interner;
mod lookup;
mod may_wait;
mod method;
mod name;
mod notice;
mod phase;
mod probe;
mod range;
mod request;
mod resource;
mod response;
mod secure;
mod served;
mod status;
mod target;
mod tunnel;
mod url_path;
mod variables;

pub use address::{AddressText, HostNames, Peer};
pub use allowance::Allowance;
use body::Whole;
pub use body::{
    BeyondLimit, Body, BodyLength, Chunk, MappedBody, Piece, ReadAhead, Source, Transfer, limited,
};
pub use conditional::{Validators, Verdict, evaluate, range_holds};
pub use date::{http_date, parse_http_date};
pub use fields::{FieldLine, Fields, Malformed, eq_ignore_case, trim};
pub use file_name::{FileName, canonical_path};
pub use filter_position::FilterPosition;
pub use interner::{Interner, Lists};
pub use lookup::{Finding, Job, Lookup, Lookups, Undecided, WantedNames};
pub use may_wait::MayWait;
pub use method::{Method, MethodSet};
pub use name::{FieldName, Name, Named};
pub use notice::{
    Level, LogLevels, Notice, Told, has_quoted, quoted, quoted_byte, quoted_path, unquoted,
};
pub use phase::{Admitted, Answer, Mapped, Prepared, Received, Stopped, Translated};
pub use probe::{Answering, OpenQuestion, Probe, Questions};
pub use range::{Part, RangeLimits, Ranges, parse_ranges};
pub use request::{
    Beyond, Departure, Late, Previous, ReceivedHead, Request, RequestHead, UsedNonce, Version,
};
pub use resource::{
    Content, Login, Negotiated, Resource, SectionWalk, SectionWalks, SettingsId, WalkedFolder,
};
pub use response::{Pace, Response, ResponseParts};
pub use secure::{ClientCertificate, Secure};
pub use served::{Pending, Served};
pub use status::Status;
pub use target::{Address, BadTarget, Proxied, Scheme, Target};
pub use tunnel::{Duplex, Passed, Switched, Tunnel};
pub use url_path::{
    AllowEncodedSlashes, BadPath, MergedPath, UriOptions, UrlPath, without_doubled_slash,
};
pub use variables::Variables;
