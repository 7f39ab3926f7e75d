//! The folders of `examples/`, each run by the commands of its README, with real proxies and real traffic.

mod all;
mod beside_service;
mod bots;
mod connections;
mod crowd;
mod fields;
mod files;
mod ingress;
mod kubernetes;
mod lists;
mod paths;
mod proxies;
mod stage;
mod tokens;
mod uploads;
