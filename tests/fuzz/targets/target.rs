//! Any text as the target of a block: it reads back, and a policy takes it or names a fault.

use slowlane_core::base::{Blocked, BlockedBy, TEXT_BYTES_MAX, Target, Timestamp, target::Fields};
use slowlane_core::policy::{BlockIndex, Policy};

pub fn run(bytes: &[u8]) {
    if let Ok(target) = Target::parse(bytes) {
        let text = target.to_string();
        assert!(
            text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{text}"
        );
        assert_eq!(Target::parse(text.as_bytes()), Ok(target.clone()));
        if let Target::Fields(fields) = target {
            blocked(&fields);
        }
    }
    // The bytes themselves as a value.
    if let Ok(fields) = Fields::new([("path", bytes)]) {
        let target = Target::Fields(fields);
        assert_eq!(Target::parse(target.to_string().as_bytes()), Ok(target));
    }
}

/// Fields that a policy takes as they are typed have one form: typed again, they stay as they are.
fn blocked(fields: &Fields) {
    let policy = Policy::builtin();
    let blocked = Blocked { by: BlockedBy::Operator(1), until: Timestamp::from_millis(1) };
    policy.add_block(&mut BlockIndex::default(), fields, blocked).expect("eight new fields have room");
    if let Ok(known) = policy.block_fields(fields.iter()) {
        assert_eq!(policy.block_fields(known.iter()), Ok(known));
    }
}
