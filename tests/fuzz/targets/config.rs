//! Any text as `slowlane.toml`: each mistake is one line and has its place, and what `config show` prints is a file
//! that says the same.

use slowlane::config::examine;

/// The mistakes of the text are bounded, and so are those of two settings that do not go together.
const MISTAKES_MAX: usize = 100 + 2;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (shown, mistakes) = examine(&text);
    assert!(mistakes.len() <= MISTAKES_MAX);
    let lines = text.split('\n').count();
    for (line, message) in &mistakes {
        assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{message:?} has no place: {line:?}");
        assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?} is not one line");
    }
    // A token is not shown, so the listener may lack one.
    let (again, mistakes) = examine(&shown);
    assert_eq!(again, shown);
    assert!(mistakes.iter().all(|(_, message)| message.contains("token")), "{mistakes:?} in {shown}");
}
