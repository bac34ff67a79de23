//! What all handlers of programs have in common: the variables that a program is told
//! ([`variables`]), and the response that is made of what it answers ([`respond`]).

mod answer;
mod variables;

pub use answer::{Output, respond};
pub use variables::{Program, variables};
