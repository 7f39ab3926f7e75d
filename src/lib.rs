//! slowlane tells HAProxy and nginx, for every request: pass, wait N ms, or 429.
//!
//! The way of a request, in one direction:
//!
//! ```text
//!  socket ─bytes─▶ spop::Frame ─▶ spop::Connection ─Notify─▶ haproxy ─Request─▶┐
//!  socket ─bytes─▶ hyper ─────────── headers ──────────────▶ nginx ───Request─▶┤
//!                                                                              ▼
//!        Throttle::decide(&Request, now, draw) -> Decision
//!          policy.cases(&request)                    -> SLOs with their keys, mostly one; cost
//!          table.with(key, now, |entry| law.judge(entry, annex, &arrival)) -> Judgement
//!                                                                              │
//!  socket ◀─bytes── spop::Ack ◀─variables── haproxy ◀───── Decision ◀──────────┤
//!  socket ◀─bytes── hyper ◀─status, headers── nginx ◀───── Decision ◀──────────┘
//!
//!  a file edit ─▶ reload ─Policy─▶ Throttle, swapped whole
//! ```
//!
//! Read it from the inside: [`law`] is the arithmetic, [`table`] what is remembered, [`policy`] who falls
//! under what, [`annexes`] what some laws remember beside the table, [`throttle`] the four together. [`spop`] is the protocol as values. [`haproxy`] and [`nginx`]
//! put questions and answers into the words of the two proxies. [`status`] is what an operator reads, on the page and
//! in [`top`], [`runtime_api`] the words of HAProxy's that he may ask for it with. [`server`] has the sockets and all
//! that waits, [`daemon`] builds everything once. [`simulate`] asks the same throttle on behalf of clients that it makes
//! up, [`replay`] on behalf of those that an access log tells of; [`chart`] draws what came of either. [`demo`] puts the
//! daemon between real clients and an application. [`admin_client`] asks a daemon that runs. [`shipped`] has the files for the proxies.
//!
//! What is deliberately absent below [`server`]: clocks, sockets, tasks, locks held across anything, logs and
//! metrics. The moment and the dice are read at the edge and handed down, so every test of the core is
//! arithmetic. [`throttle::Throttle::decide`] cannot fail.

pub mod admin_client;
pub mod annexes;
pub mod chart;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod demo;
pub mod draw;
pub mod haproxy;
pub mod key;
pub mod law;
pub mod network;
pub mod nginx;
pub mod policy;
pub mod quota;
pub mod reload;
pub mod replay;
pub mod request;
pub mod runtime_api;
pub mod server;
pub mod shipped;
pub mod shown;
pub mod simulate;
pub mod slo_id;
pub mod spop;
pub mod status;
pub mod table;
pub mod telemetry;
pub mod throttle;
pub mod ticket;
pub mod time;
pub mod top;
pub mod units;
pub mod verdict;
