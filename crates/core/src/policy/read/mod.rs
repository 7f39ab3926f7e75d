//! Reads the files of a policy: the lines of `slo.map` and of the maps, with their positions.

pub(in crate::policy) mod file;
pub(in crate::policy) mod hosts;
pub mod map;
pub(in crate::policy) mod slo;
pub(in crate::policy) mod work;
