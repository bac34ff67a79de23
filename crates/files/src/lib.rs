//! The room `files`.
