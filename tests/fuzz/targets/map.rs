//! Any text as a map file.

use slowlane_core::policy::map;

pub fn run(text: &[u8]) {
    let mut last = 0;
    for line in map::lines(text) {
        let number = match &line {
            Ok(line) => line.number,
            Err((number, _)) => *number,
        };
        assert!(number > last);
        last = number;
        if let Ok(line) = line {
            assert!(!line.key.is_empty() && text[line.at..].starts_with(line.key));
            assert!(!line.key.iter().chain(line.value).any(|byte| matches!(byte, 0 | b'\n' | b'\r')));
        }
    }
}
