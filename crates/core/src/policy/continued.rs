//! What a policy hands on to the next one, and the size of its sketches.

use crate::policy::Policy;

impl Policy {
    /// Gives each SLO in work the estimates of the previous policy, if it has the same unit.
    pub fn continue_from(&mut self, before: &Policy) {
        for (id, work) in self.slos.iter_mut().filter_map(|slo| Some((slo.id, slo.work.as_mut()?))) {
            let known = before.slo(id).and_then(|slo| slo.work.as_ref());
            known.inspect(|known| work.continue_from(known));
        }
    }

    /// The memory of all sketches, in bytes.
    pub fn sketch_bytes(&self) -> usize {
        self.slos.iter().filter_map(|slo| slo.law.sketched()).map(|law| law.shape.bytes()).sum()
    }
}
