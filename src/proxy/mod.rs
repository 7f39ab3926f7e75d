//! HAProxy and nginx: their questions, their answers, and the files shipped for them.

pub mod haproxy;
pub mod nginx;
pub mod shipped;
