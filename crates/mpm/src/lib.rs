//! The room `mpm`.
