//! HAProxy, nginx and Envoy: their queries, slowlane's answers, and the files shipped for them.

pub mod attach;
pub mod check_fields;
pub mod end_line;
pub mod envoy;
pub mod haproxy;
pub(crate) mod haproxy_syntax;
pub(crate) mod installed;
pub mod nginx;
pub(crate) mod nginx_files;
pub(crate) mod nginx_syntax;
pub mod shipped;
