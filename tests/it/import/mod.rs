//! The import of other programs' limits: the examples of their documentation, and what they become.

mod beside;
mod command;
mod descriptors;
mod envoy_limits;
mod examples;
mod hostile;
mod limitador;
mod models;
