//! The room `scoreboard`.
