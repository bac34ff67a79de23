//! The room `modules`.
