//! The law in virtual time: a modelled application, and the pass marks.

mod loads;
mod marks;
mod properties;
mod world;
