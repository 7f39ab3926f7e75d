//! Bots that name themselves in their user agent.

/// Parts of the names of bots.
const MARKS: [&[u8]; 4] = [b"bot", b"crawl", b"spider", b"slurp"];

/// A brand of phones, not a bot.
const NO_BOT: &[u8] = b"cubot";

/// Longer words are cut: clients choose them.
const NAME_BYTES_MAX: usize = 40;

/// The word of a user agent that names a bot: `Googlebot/2.1`. An agent with a `+http` address names itself with its
/// first word.
pub(super) fn bot(agent: &[u8]) -> Option<&str> {
    let is_in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"._/-".contains(byte);
    let words = agent.split(|byte| !is_in_word(byte));
    // The host of a URL begins with two slashes.
    let mut words =
        words.map(|word| word.strip_prefix(b"//").unwrap_or(word)).filter(|word| !word.is_empty());
    let first = words.clone().next().filter(|_| has(agent, b"+http"));
    let is_bot = |word: &&[u8]| MARKS.iter().any(|mark| has(word, mark)) && !has(word, NO_BOT);
    let name = words.find(is_bot).or(first)?;
    std::str::from_utf8(&name[..name.len().min(NAME_BYTES_MAX)]).ok()
}

fn has(text: &[u8], mark: &[u8]) -> bool {
    text.windows(mark.len()).any(|part| part.eq_ignore_ascii_case(mark))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bots_are_known_by_their_own_words() {
        for (agent, name) in [
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                Some("Googlebot/2.1"),
            ),
            ("Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/)", Some("Slurp")),
            ("Sogou web spider/4.0(+http://www.sogou.com)", Some("spider/4.0")),
            (
                "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
                Some("UniversalFeedParser/4.2-pre-314-svn"),
            ),
            ("Mozilla/5.0 (Linux; Android 9; CUBOT_X18) Mobile Safari/537.36", None),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0", None),
            ("Mozilla/5.0 (compatible; http://yandex.com/bots)", Some("yandex.com/bots")),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(bot(agent.as_bytes()), name, "{agent}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_short_and_safe_to_show(agent in prop::collection::vec(any::<u8>(), 0..200), mark in 0usize..4) {
            let agent = [&agent[..], MARKS[mark]].concat();
            let name = bot(&agent).unwrap_or("x");
            prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
