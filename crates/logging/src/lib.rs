//! The room `logging`.
