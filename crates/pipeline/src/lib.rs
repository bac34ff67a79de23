//! From the tree of directives to a site, and from a request to its response: the phases in
//! order, each a list of the modules that act in it. It knows no socket and no process.

mod alike;
mod body;
mod caching;
mod cgi;
mod checking;
mod clock;
mod die;
mod digest_login;
mod error_page;
mod external;
mod fcgid;
mod filtering;
mod form_login;
mod frames;
mod handler;
mod handlers;
mod hosts;
mod htaccess;
mod including;
mod known;
mod listing;
mod login;
mod look;
mod magic;
mod negotiate;
mod origin;
mod phases;
mod php;
mod proxying;
mod question;
mod rewriting;
mod serve;
mod sessions;
mod site;
mod spelling;
mod storing;
mod trace;
mod walk;
mod walks;
mod way;

pub use checking::{CheckTeller, check_balancers};
pub use hosts::{Address, AddressHosts, Host, Hosts, parse_address};
pub use php::{ApplicationPool, Begun, PhpPools};
pub use serve::{Pipeline, Teller};
pub use site::{Identity, Language, Plan, Server, Site};
