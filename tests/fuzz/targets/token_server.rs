//! Any bytes to a token server: messages read back as they were written, and each has a finite answer or none.

use std::time::Duration;

use slowlane::store_protocol::{Question, StoreAnswer, frame, read};
use slowlane_core::base::Timestamp;
use slowlane_core::cluster::{Presence, StoreServer};
use tokio::runtime::Builder;

/// Small, so that inputs reach it.
const BYTES_MAX: usize = 4_096;

/// What is written again may be longer: bytes of a target are escaped.
const WRITTEN_BYTES_MAX: usize = 64 * BYTES_MAX;

pub fn run(bytes: &[u8]) {
    Builder::new_current_thread().build().unwrap().block_on(answer(bytes));
}

async fn answer(mut bytes: &[u8]) {
    let (mut store, mut now) = (StoreServer::new("e".into()), Timestamp::from_millis(1_700_000_000_000));
    while let Ok(question) = read::<Question>(&mut bytes, BYTES_MAX).await {
        let written = frame(&question);
        let again: Question = read(&mut &written[..], WRITTEN_BYTES_MAX).await.unwrap();
        assert_eq!(frame(&again), written);
        let Question::Exchange(due) = question else { continue };
        now = now + Duration::from_millis(500);
        let Some(response) = store.exchange(&due, Presence::Node, now) else { continue };
        let numbers = format!("{:?}", response.answers);
        assert!(!numbers.contains("NaN") && !numbers.contains("inf"), "{numbers}");
        assert_eq!(response.answers.len(), due.updates.len());
        let written = frame(&StoreAnswer::Response(Box::new(response)));
        read::<StoreAnswer>(&mut &written[..], usize::MAX).await.unwrap();
    }
}
