//! The connected SPOE engines of each HAProxy.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use slowlane_core::base::shown;

/// The maximum number of engines listed individually. Later ones are counted together.
const ENGINES_MAX: usize = 64;

/// The maximum number of characters of an id that are kept. HAProxy's ids have 36.
const ID_CHARS_MAX: usize = 64;

/// The name of an engine without an id, as in old versions.
const NAMELESS: &str = "-";

/// The name of all engines beyond [`ENGINES_MAX`].
const OTHERS: &str = "others";

/// Open connections by engine.
#[derive(Debug, Default)]
pub struct Engines(Mutex<Vec<Engine>>);

/// An engine with its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    pub id: String,
    /// The address that it connects from, without the port.
    pub from: String,
    pub connections: u32,
}

impl Engines {
    /// Counts a connection until the returned value is dropped.
    pub fn connected(self: &Arc<Engines>, id: Option<&str>, from: &str) -> Connected {
        let mut engines = self.0.lock();
        let (mut id, mut from) = (shown(begin(id.unwrap_or(NAMELESS))), shown(from));
        if engines.len() >= ENGINES_MAX && !engines.iter().any(|engine| engine.is(&id, &from)) {
            (id, from) = (OTHERS.to_owned(), String::new());
        }
        match engines.iter_mut().find(|engine| engine.is(&id, &from)) {
            Some(engine) => engine.connections += 1,
            None => engines.push(Engine { id: id.clone(), from: from.clone(), connections: 1 }),
        }
        Connected { engines: self.clone(), id, from }
    }

    /// The engines in the order of their first connection.
    pub fn list(&self) -> Vec<Engine> {
        self.0.lock().clone()
    }
}

impl Engine {
    fn is(&self, id: &str, from: &str) -> bool {
        self.id == id && self.from == from
    }
}

fn begin(id: &str) -> &str {
    id.char_indices().nth(ID_CHARS_MAX).map_or(id, |(end, _)| &id[..end])
}

/// A connection of an engine, until it is dropped.
#[derive(Debug)]
pub struct Connected {
    engines: Arc<Engines>,
    id: String,
    from: String,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut engines = self.engines.0.lock();
        if let Some(engine) = engines.iter_mut().find(|engine| engine.is(&self.id, &self.from)) {
            engine.connections -= 1;
        }
        // An engine without connections makes room for another.
        engines.retain(|engine| engine.connections > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_there_as_long_as_it_has_a_connection() {
        let engines = Arc::new(Engines::default());
        let first = engines.connected(Some("a"), "192.0.2.1");
        let second = engines.connected(Some("a"), "192.0.2.1");
        let third = engines.connected(None, "192.0.2.1");
        let reported = |engines: &Engines| -> Vec<(String, u32)> {
            engines.list().into_iter().map(|engine| (engine.id, engine.connections)).collect()
        };
        assert_eq!(reported(&engines), [("a".into(), 2), ("-".into(), 1)]);
        drop((first, third));
        assert_eq!(reported(&engines), [("a".into(), 1)]);
        drop(second);
        assert_eq!(reported(&engines), []);
    }

    #[test]
    fn ever_new_engine_ids_stay_bounded() {
        let engines = Arc::new(Engines::default());
        let all: Vec<_> = (0..1_000).map(|id| engines.connected(Some(&id.to_string()), "")).collect();
        let list = engines.list();
        assert_eq!(list.len(), ENGINES_MAX + 1);
        assert_eq!((&*list[ENGINES_MAX].id, list[ENGINES_MAX].connections), ("others", 936));
        drop(all);
        assert_eq!(engines.list(), []);
        let long = engines.connected(Some(&"é".repeat(10_000)), "");
        assert_eq!(*engines.list()[0].id, *"é".repeat(ID_CHARS_MAX));
        drop(long);
        assert_eq!(engines.list(), []);
    }
}
