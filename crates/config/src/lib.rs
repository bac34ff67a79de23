//! Parses the text of httpd.conf into a tree of directives with file and line, and applies that
//! tree by calling the functions in the tables of directives. This room does not know what a
//! directive means: modules pass in their tables, and a [`Vocabulary`] answers what else must be
//! known while the text is read, such as which modules there are.
//!
//! There are two passes, as in Apache. [`read`] acts on what changes the text itself (Include,
//! Define, the If sections, Macro, LoadModule, ServerRoot) and builds the tree, so an error in the
//! structure is reported before any error in an argument. [`apply`] then walks the tree in order.

mod apply;
mod condition;
mod directive;
mod fault;
mod include;
mod keyword;
mod known;
mod lines;
mod macros;
mod missing;
mod modules;
mod node;
mod path;
mod pattern;
mod place;
mod read;
mod shape;
mod variables;
mod version;
mod vocabulary;
mod words;

pub use apply::{Block, Call, GlobalCall, Grant, apply, apply_htaccess, unknown_directives};
pub use directive::{
    Act, Contexts, Directive, Enter, EnterGlobal, Overrides, Set, SetGlobal, Shape, Table, Tables,
    allowed_text,
};
pub use fault::{Fault, Faults, Level, Notice, Stage};
pub use include::Included;
pub use keyword::{Reserved, reserved};
pub use known::{Standard, module_of, standard_module};
pub use missing::Missing;
pub use modules::{ModuleSet, Offer};
pub use node::{Node, Position, print_tree};
pub use path::absolute;
pub use pattern::{Wildcards, has_wildcards, matches_wildcards};
pub use read::{Main, Start, Tree, read, read_htaccess};
pub use variables::Variables;
pub use vocabulary::Vocabulary;
pub use words::{next_word, words};
