//! What agents of many runs share: to make it takes longer than a run.

use std::sync::{Arc, LazyLock};

use slowlane::observe::metrics::Metrics;
use slowlane::observe::status::Status;

static METRICS: LazyLock<Arc<Metrics>> = LazyLock::new(|| Arc::new(Metrics::new()));

static STATUS: LazyLock<Arc<Status>> = LazyLock::new(Arc::default);

pub(super) fn watched() -> (Arc<Metrics>, Arc<Status>) {
    (METRICS.clone(), STATUS.clone())
}
