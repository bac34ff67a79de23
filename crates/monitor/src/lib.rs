//! The room `monitor`.
