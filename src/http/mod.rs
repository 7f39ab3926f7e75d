//! HTTP/1.1 as values: requests are parsed from bytes, and answers are bytes. This module has no socket and no clock.
//!
//! The module serves proxies that send a query for each request, so heads are small, bodies are not needed and are
//! skipped, and answers have no body except a reason. Where RFC 9112 does not define the end of a message, the
//! connection is closed.
//!
//! ```text
//!  │ GET /check HTTP/1.1␍␊Host: …␍␊X-Slowlane-Source: 192.0.2.1␍␊␍␊ │ body │ the next head …
//!  ╰────────────── HttpHead::cut ───────────────────────────────────╯      │
//!                                       Framing::skip ─────────────────────╯
//! ```

mod answer;
mod head;

pub use answer::{Date, HttpAnswer};
pub use head::{Framing, HEAD_BYTES_MAX, HEADERS_MAX, HeaderSlots, HttpHead, Refusal};
pub use hyper::{StatusCode, Version};
