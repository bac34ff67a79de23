//! The room `pipeline`.
