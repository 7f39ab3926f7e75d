//! Files to lines: what stands in `slo.map` and in the maps, and where.

pub(in crate::policy) mod answer;
pub(in crate::policy) mod file;
pub mod map;
pub(in crate::policy) mod size;
pub(in crate::policy) mod slo;
pub(in crate::policy) mod strays;
