//! The room `proto`.
