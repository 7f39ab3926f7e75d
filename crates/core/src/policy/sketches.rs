//! The sketches of a policy in force: the counts of all keys under the law `sketch`.

use std::sync::Arc;

use crate::base::SloId;
use crate::policy::Policy;
use crate::table::Sketch;

impl Policy {
    /// Gives each SLO with the law `sketch` its counts, and each SLO in work its estimates: those of the previous policy
    /// if nothing that shapes them has changed, otherwise none.
    pub fn put_sketches(&mut self, before: Option<&Policy>) {
        for work in self.slos.iter_mut().filter_map(|slo| Some((slo.id, slo.work.as_mut()?))) {
            let known = before.and_then(|before| before.slo(work.0)?.work.as_ref());
            known.inspect(|known| work.1.continue_from(known));
        }
        for ((slo, plan), refs) in self.slos.iter().zip(&self.plans).zip(&mut self.refs) {
            let known = before.and_then(|before| {
                let place = before.place(slo.id)?;
                let sketch = before.refs[place].sketch.clone();
                sketch.filter(|_| before.plans[place].state_tag == plan.state_tag)
            });
            let fresh = || slo.law.sketched().map(|law| Arc::new(Sketch::new(law.shape, law.period())));
            refs.sketch = known.or_else(fresh);
        }
    }

    /// The counts under an SLO of the law `sketch`.
    pub fn sketch(&self, slo: SloId) -> Option<&Sketch> {
        self.refs[self.place(slo)?].sketch.as_deref()
    }

    /// The memory of all sketches, in bytes.
    pub fn sketch_bytes(&self) -> usize {
        self.slos.iter().filter_map(|slo| slo.law.sketched()).map(|law| law.shape.bytes()).sum()
    }
}
