//! The room `expr`.
