//! Functions that all handlers of programs share: [`variables`] sets the variables of a program,
//! and [`respond`] makes a response from its output.

mod answer;
mod variables;

pub use answer::{Output, respond};
pub use variables::{Program, variables};
