//! The room `sys`.
