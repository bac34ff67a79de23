//! The room `pool`.
