//! The commands of a token server: words in, an answer out.

use std::time::Duration;

use crate::resp;
use crate::sync::call::Call;
use crate::sync::numbers;
use slowlane_core::base::key::{Key, KeySecret};
use slowlane_core::base::target::Target;
use slowlane_core::base::time::Timestamp;
use slowlane_core::base::token::Token;
use slowlane_core::cluster::{Beat, BlockWord, BlockWords, Board, Ledger, Member, Presence, Roll};

/// The most keys with a record, about 80 MB.
const RECORDS_MAX: usize = 500_000;

/// How often records at their end are forgotten.
const SWEEP: Duration = Duration::from_secs(5);

/// An error that tells a client how to call.
const FAULTY: &str =
    "ERR these are not the arguments of this command; give all nodes the same version of slowlane";

/// What a token server keeps.
#[derive(Debug)]
pub(super) struct Desk {
    ledger: Ledger,
    roll: Roll,
    board: Board,
    token: Option<Token>,
    swept: Timestamp,
}

/// A client of a token server.
#[derive(Debug)]
pub(super) struct Client {
    /// It has shown the token, or there is none.
    pub(super) is_known: bool,
    pub(super) presence: Presence,
}

impl Desk {
    /// The epoch tells the blocks of this run from those of another one.
    pub(super) fn new(token: Option<Token>, epoch: String) -> Desk {
        Desk {
            ledger: Ledger::new(RECORDS_MAX),
            roll: Roll::default(),
            board: Board::new(epoch),
            token,
            swept: Timestamp::default(),
        }
    }

    pub(super) fn client(&self) -> Client {
        Client { is_known: self.token.is_none(), presence: Presence::Node }
    }

    pub(super) fn records(&self) -> usize {
        self.ledger.len()
    }

    pub(super) fn refused(&self) -> u64 {
        self.ledger.refused()
    }

    /// Answers a command.
    pub(super) fn answer(&mut self, client: &mut Client, words: &[&[u8]], now: Timestamp, out: &mut Vec<u8>) {
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.ledger.sweep(now);
        }
        let Some((command, words)) = words.split_first() else { return };
        let is = |name: &str| command.eq_ignore_ascii_case(name.as_bytes());
        if is("AUTH") {
            return self.log_in(client, words, out);
        }
        if !client.is_known {
            return resp::write_error(out, "NOAUTH Authentication required.");
        }
        if let Some(call) = Call::ALL.into_iter().find(|call| is(call.command())) {
            if self.call(call, client, words, now, out).is_none() {
                resp::write_error(out, FAULTY);
            }
        } else if is("PING") {
            resp::write_simple(out, "PONG");
        } else if is("CLIENT") {
            // Clients of Redis tell their name and their version.
            resp::write_simple(out, "OK");
        } else {
            resp::write_error(out, "ERR unknown command: this is a slowlane, and no Redis");
        }
    }

    fn log_in(&self, client: &mut Client, words: &[&[u8]], out: &mut Vec<u8>) {
        let given = words.last().copied().unwrap_or_default();
        match &self.token {
            None => resp::write_error(out, "ERR Client sent AUTH, but no token is set"),
            Some(token) if token.is(given) => {
                client.is_known = true;
                resp::write_simple(out, "OK");
            }
            Some(_) => {
                client.is_known = false;
                resp::write_error(out, "WRONGPASS invalid token");
            }
        }
    }

    /// None: these are no arguments of this call.
    fn call(
        &mut self,
        call: Call,
        client: &Client,
        words: &[&[u8]],
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (keys, words) = words.split_first()?;
        let keys: usize = text(keys)?.parse().ok()?;
        let (keys, words) = words.split_at_checked(keys)?;
        match call {
            Call::Rate | Call::Count | Call::Lease => self.post(call, keys, words, now, out),
            Call::Beat => self.beat(client, words, now, out),
            Call::Blocks => self.tell_blocks(words, now, out),
        }
    }

    fn post(
        &mut self,
        call: Call,
        keys: &[&[u8]],
        words: &[&[u8]],
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let arguments = call.arguments()?;
        if words.len() != keys.len() * arguments {
            return None;
        }
        // All are read before the first one counts.
        let read = |(key, words): (&&[u8], &[&[u8]])| {
            Some((Key::from_hex(text(key)?)?, numbers::posting(call, words)?))
        };
        let postings: Vec<_> =
            keys.iter().zip(words.chunks_exact(arguments)).map(read).collect::<Option<_>>()?;
        resp::write_array(out, postings.len());
        for (key, posting) in postings {
            resp::write_bulk(out, numbers::of_answer(&self.ledger.post(key, &posting, now)));
        }
        Some(())
    }

    fn beat(&mut self, client: &Client, words: &[&[u8]], now: Timestamp, out: &mut Vec<u8>) -> Option<()> {
        let (&[_run, member, secret, _present, _kept], crowded) = words.split_first_chunk()?;
        let (member, secret) = (Member::read(member)?, KeySecret::read(secret)?.to_hex());
        let crowded = crowded.iter().map(|key| Key::from_hex(text(key)?)).collect::<Option<_>>()?;
        let census = self.roll.beat(Beat { member, secret, crowded }, client.presence, now);
        resp::write_array(out, 4);
        resp::write_bulk(out, census.now_us.to_string());
        resp::write_bulk(out, census.secret);
        resp::write_array(out, census.members.len());
        census.members.iter().for_each(|member| resp::write_bulk(out, member.words()));
        resp::write_array(out, census.crowded.len());
        census.crowded.iter().for_each(|key| resp::write_bulk(out, key.to_string()));
        Some(())
    }

    fn tell_blocks(&mut self, words: &[&[u8]], now: Timestamp, out: &mut Vec<u8>) -> Option<()> {
        let (&[epoch, seq, _fresh], changes) = words.split_first_chunk()?;
        if changes.len() % 3 != 0 {
            return None;
        }
        let change = |words: &[&[u8]]| {
            let (target, rest) = (Target::parse(words[0]).ok()?, numbers::rest(words[1])?);
            Some(BlockWord { target, rest, is_taught: words[2] == b"1" })
        };
        let changes = changes.chunks_exact(3).map(change).collect::<Option<_>>()?;
        let words = BlockWords { epoch: text(epoch)?.to_owned(), seq: text(seq)?.parse().ok()?, changes };
        let news = self.board.tell(&words, now);
        resp::write_array(out, 5);
        resp::write_bulk(out, news.epoch);
        resp::write_bulk(out, news.seq.to_string());
        resp::write_bulk(out, news.extent.word());
        resp::write_array(out, 2 * news.list.len());
        for (target, rest) in news.list {
            resp::write_bulk(out, target.to_string());
            resp::write_bulk(out, numbers::of_rest(rest));
        }
        resp::write_array(out, news.refused.len());
        news.refused.iter().for_each(|place| resp::write_bulk(out, place.to_string()));
        Some(())
    }
}

fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);
    const KEY: &str = "26C7827D889F6DA3";
    const RATE: &str = "2000000 1.000 1.000 1000000 15000000  1000000 36000 0 0";

    fn ask(desk: &mut Desk, client: &mut Client, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut out = Vec::new();
        desk.answer(client, &words, START, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn open() -> (Desk, Client) {
        let desk = Desk::new(None, "e".into());
        let client = desk.client();
        (desk, client)
    }

    fn rate(words: &str) -> Vec<&str> {
        ["SLOWLANE.RATE", "1", KEY].into_iter().chain(words.split(' ')).collect()
    }

    #[test]
    fn without_the_token_nothing_is_answered() {
        let token = Token::try_from("0123456789abcdef".to_owned()).unwrap();
        let mut desk = Desk::new(Some(token), "e".into());
        let mut client = desk.client();
        for words in [vec!["PING"], rate(RATE), vec!["SLOWLANE.BLOCKS", "0", "", "0", "x"]] {
            assert!(ask(&mut desk, &mut client, &words).starts_with("-NOAUTH"), "{words:?}");
        }
        for given in ["", "0123456789abcde", "0123456789abcdeF"] {
            assert!(ask(&mut desk, &mut client, &["AUTH", given]).starts_with("-WRONGPASS"));
        }
        assert_eq!(ask(&mut desk, &mut client, &["AUTH", "0123456789abcdef"]), "+OK\r\n");
        assert_eq!(ask(&mut desk, &mut client, &["ping"]), "+PONG\r\n");
        assert!(ask(&mut desk, &mut client, &["AUTH", "x"]).starts_with("-WRONGPASS"));
        assert!(ask(&mut desk, &mut client, &["PING"]).starts_with("-NOAUTH"));
        assert_eq!(desk.records(), 0);
    }

    #[test]
    fn a_message_about_a_key_is_answered_as_the_script_does() {
        let (mut desk, mut client) = open();
        // 2 s of the rate, after a full burst of 1 s.
        assert_eq!(ask(&mut desk, &mut client, &rate(RATE)), "*1\r\n$23\r\n1000000 1.0000 1.0000 0\r\n");
        assert_eq!(ask(&mut desk, &mut client, &rate(RATE)), "*1\r\n$23\r\n3000000 2.0000 2.0000 0\r\n");
    }

    #[test]
    fn a_command_with_a_fault_changes_nothing() {
        let (mut desk, mut client) = open();
        for words in [
            vec!["SLOWLANE.RATE"],
            vec!["SLOWLANE.RATE", "x"],
            vec!["SLOWLANE.RATE", "18446744073709551615", KEY],
            rate("1"),
            rate("nan 1 1 1 1 1 1 1 1 1"),
            rate("1e300 1 1 1 1 1 1 1 1 1"),
            vec!["SLOWLANE.BEAT", "0", "run", "no json", "00112233445566778899aabbccddeeff", "1", "1"],
            vec!["SLOWLANE.BEAT", "0", "run", "{}", "no secret", "1", "1"],
            vec!["SLOWLANE.BLOCKS", "0", "e", "-1", "x"],
            vec!["SLOWLANE.BLOCKS", "0", "e", "0", "x", "source=192.0.2.1"],
            vec!["SLOWLANE.BLOCKS", "0", "e", "0", "x", "nonsense", "1", "0"],
        ] {
            assert!(ask(&mut desk, &mut client, &words).starts_with("-ERR"), "{words:?}");
        }
        assert_eq!(desk.records(), 0);
    }

    #[test]
    fn blocks_go_from_node_to_node() {
        let (mut desk, mut client) = open();
        let block = ["SLOWLANE.BLOCKS", "0", "", "0", "x", "source=192.0.2.66", "60000", "0"];
        assert_eq!(
            ask(&mut desk, &mut client, &block),
            "*5\r\n$1\r\ne\r\n$1\r\n1\r\n$4\r\nlost\r\n*0\r\n*0\r\n"
        );
        assert_eq!(
            ask(&mut desk, &mut client, &["SLOWLANE.BLOCKS", "0", "e", "0", "x"]),
            "*5\r\n$1\r\ne\r\n$1\r\n1\r\n$4\r\nnews\r\n*2\r\n$17\r\nsource=192.0.2.66\r\n$5\r\n60000\r\n*0\r\n"
        );
    }

    proptest! {
        /// Whatever a client sends, there is one answer to each command.
        #[test]
        fn any_words_have_an_answer(
            call in 0usize..5, words in prop::collection::vec("[-0-9a-z=.]{0,6}|0|1|26C7827D889F6DA3", 0..14),
        ) {
            let (mut desk, mut client) = open();
            let all: Vec<&str> = std::iter::once(Call::ALL[call].command()).chain(words.iter().map(String::as_str)).collect();
            let answer = ask(&mut desk, &mut client, &all);
            prop_assert!(answer.starts_with(['-', '*']) && answer.ends_with("\r\n"), "{answer}");
        }
    }
}
