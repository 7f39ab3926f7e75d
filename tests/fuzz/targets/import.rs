//! Any text as a configuration of each program: an error, or a policy whose notes point into the text.

use clap::ValueEnum;
use slowlane::import::{Program, import};

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count().max(1);
    for &program in Program::value_variants() {
        let Ok(written) = import(&text, Some(program)) else { continue };
        let lines_of_file = written.files.iter().flat_map(|file| file.text.lines());
        assert!(lines_of_file.flat_map(str::chars).all(|letter| !letter.is_control()), "{written:?}");
        for omission in &written.omissions {
            assert!((1..=lines + 1).contains(&omission.line), "{omission:?}");
        }
    }
}
