//! The room `conn`.
