//! The connected SPOE engines of each HAProxy.

use std::sync::Arc;

use parking_lot::Mutex;

/// The most engines listed one by one. Later ones are counted together.
const ENGINES_MAX: usize = 64;

/// The most characters of an id that are kept. HAProxy's ids have 36.
const ID_CHARS_MAX: usize = 64;

/// The name of an engine without an id, as in old versions.
const NAMELESS: &str = "-";

/// The name of all engines beyond [`ENGINES_MAX`].
const OTHERS: &str = "others";

/// Open connections by engine.
#[derive(Debug, Default)]
pub struct Engines(Mutex<Vec<Engine>>);

/// An engine with its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    pub id: Box<str>,
    /// The address that it connects from, without the port.
    pub from: Box<str>,
    pub connections: u32,
}

impl Engines {
    /// Counts a connection until the returned value is dropped.
    pub fn connected(self: &Arc<Engines>, id: Option<&str>, from: &str) -> Connected {
        let mut engines = self.0.lock();
        let (id, from) = (begin(id.unwrap_or(NAMELESS)), from);
        let has_room = engines.len() < ENGINES_MAX;
        let is_known = |engine: &Engine| (&*engine.id, &*engine.from) == (id, from);
        let (id, from) = match has_room || engines.iter().any(is_known) {
            true => (id, from),
            false => (OTHERS, ""),
        };
        let engine = engines.iter_mut().find(|engine| (&*engine.id, &*engine.from) == (id, from));
        match engine {
            Some(engine) => engine.connections += 1,
            None => engines.push(Engine { id: id.into(), from: from.into(), connections: 1 }),
        }
        Connected { engines: self.clone(), id: id.into(), from: from.into() }
    }

    /// The engines in the order of their first connection.
    pub fn list(&self) -> Vec<Engine> {
        self.0.lock().clone()
    }
}

fn begin(id: &str) -> &str {
    id.char_indices().nth(ID_CHARS_MAX).map_or(id, |(end, _)| &id[..end])
}

/// A connection of an engine, until it is dropped.
#[derive(Debug)]
pub struct Connected {
    engines: Arc<Engines>,
    id: Box<str>,
    from: Box<str>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut engines = self.engines.0.lock();
        if let Some(engine) =
            engines.iter_mut().find(|engine| (&engine.id, &engine.from) == (&self.id, &self.from))
        {
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
            engines.list().into_iter().map(|engine| (engine.id.into(), engine.connections)).collect()
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
