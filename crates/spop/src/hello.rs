//! The two hellos of a handshake: HAProxy's offer and the agent's answer.

use crate::data::encode_item;
use crate::{Data, Error, FRAME_BYTES_MIN, Frame, FrameWriter, Head, Kind, items};

const SUPPORTED_VERSIONS: &[u8] = b"supported-versions";
const VERSION: &[u8] = b"version";
const MAX_FRAME_SIZE: &[u8] = b"max-frame-size";
const CAPABILITIES: &[u8] = b"capabilities";
const HEALTHCHECK: &[u8] = b"healthcheck";
const ENGINE_ID: &[u8] = b"engine-id";

/// The agent's version. HAProxy accepts only this spelling: `2`, `2.1` and `1.0` fail the handshake.
const VERSION_2_0: &[u8] = b"2.0";

/// HAPROXY-HELLO, the first frame on a connection (SPOE.txt 3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaproxyHello<'a> {
    /// Comma-separated versions, each `Major.Minor`, as sent. Since version 1.9, HAProxy sends `2.0`.
    pub supported_versions: &'a [u8],
    /// The maximum length of a frame that HAProxy accepts, at least 256 bytes. HAProxy's default is 16380.
    pub frame_bytes_max: u32,
    /// Comma-separated, as sent.
    pub capabilities: &'a [u8],
    /// Identifies a SPOE filter of a HAProxy process and, up to HAProxy 3.0, its thread. `None` for a health check.
    pub engine_id: Option<&'a [u8]>,
    /// Whether the connection is a health check, which ends after the agent's hello.
    pub healthcheck: bool,
}

impl<'a> HaproxyHello<'a> {
    /// The hello of HAProxy 3.1 and later, without an engine-id.
    ///
    /// ```
    /// use spop::HaproxyHello;
    /// let check = HaproxyHello { capabilities: b"", healthcheck: true, ..HaproxyHello::new(16_380) };
    /// assert_eq!(check.supported_versions, b"2.0");
    /// ```
    pub const fn new(frame_bytes_max: u32) -> HaproxyHello<'a> {
        let (supported_versions, capabilities) = (VERSION_2_0, b"pipelining");
        HaproxyHello {
            supported_versions,
            frame_bytes_max,
            capabilities,
            engine_id: None,
            healthcheck: false,
        }
    }

    /// Decodes a frame of the kind `HAPROXY_HELLO`.
    ///
    /// Items may be in any order. If several have the same name, the last is used; unknown items are skipped.
    /// Capabilities are mandatory in the protocol, but nothing here uses them, so missing capabilities count as empty.
    ///
    /// # Errors
    /// The frame is fragmented, or has a stream-id, a frame-id, an unreadable item, or no valid version or
    /// frame size. The frame's kind is not checked.
    pub fn decode(frame: Frame<'a>) -> Result<HaproxyHello<'a>, Error> {
        frame.head.expect_of_connection()?;
        let (mut versions, mut frame_size, mut capabilities) = (None, None, None);
        let (mut engine_id, mut healthcheck) = (None, false);
        for item in items(frame.payload) {
            let (name, value) = item?;
            match name {
                SUPPORTED_VERSIONS => versions = Some(value),
                MAX_FRAME_SIZE => frame_size = Some(value),
                CAPABILITIES => capabilities = value.to_bytes(),
                ENGINE_ID => engine_id = value.to_bytes(),
                HEALTHCHECK => healthcheck = value == Data::Bool(true),
                _ => {}
            }
        }
        let supported_versions = versions.ok_or(Error::NoVersion)?.to_bytes().unwrap_or_default();
        if !announces_2_0(supported_versions) {
            return Err(Error::BadVersion);
        }
        let frame_bytes_max = frame_bytes_max(frame_size)?;
        let capabilities = capabilities.unwrap_or_default();
        Ok(HaproxyHello { supported_versions, frame_bytes_max, capabilities, engine_id, healthcheck })
    }

    /// Appends the frame, with its items in HAProxy's order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = FrameWriter::begin(out, Head::of_connection(Kind::HAPROXY_HELLO));
        encode_item(SUPPORTED_VERSIONS, Data::Str(self.supported_versions), frame.out);
        encode_item(MAX_FRAME_SIZE, Data::Uint32(self.frame_bytes_max), frame.out);
        encode_item(CAPABILITIES, Data::Str(self.capabilities), frame.out);
        if let Some(engine_id) = self.engine_id {
            encode_item(ENGINE_ID, Data::Str(engine_id), frame.out);
        }
        if self.healthcheck {
            encode_item(HEALTHCHECK, Data::Bool(true), frame.out);
        }
        frame.finish();
    }
}

/// AGENT-HELLO, the answer (SPOE.txt 3.2.5). Its version is always 2.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentHello<'a> {
    /// The maximum length of frames for both sides: at least 256 bytes, at most the length that HAProxy offers.
    pub frame_bytes_max: u32,
    /// The capabilities, comma-separated. With `pipelining`, HAProxy may send a NOTIFY before it gets an ACK.
    pub capabilities: &'a [u8],
}

impl<'a> AgentHello<'a> {
    /// Decodes a frame of the kind `AGENT_HELLO`, with the same checks as HAProxy.
    ///
    /// # Errors
    /// The frame is fragmented, or has a stream-id, a frame-id, an unreadable item, or a version or frame
    /// size that HAProxy refuses. The frame's kind is not checked.
    pub fn decode(frame: Frame<'a>) -> Result<AgentHello<'a>, Error> {
        frame.head.expect_of_connection()?;
        let (mut version, mut frame_size, mut capabilities) = (None, None, None);
        for item in items(frame.payload) {
            let (name, value) = item?;
            match name {
                VERSION => version = Some(value),
                MAX_FRAME_SIZE => frame_size = Some(value),
                CAPABILITIES => capabilities = value.to_bytes(),
                _ => {}
            }
        }
        if version.ok_or(Error::NoVersion)? != Data::Str(VERSION_2_0) {
            return Err(Error::BadVersion);
        }
        let frame_bytes_max = frame_bytes_max(frame_size)?;
        Ok(AgentHello { frame_bytes_max, capabilities: capabilities.unwrap_or_default() })
    }

    /// Appends the frame. Send it in one write, because HAProxy 3.1 to 3.2.22 drops the connection if a hello
    /// arrives in two parts.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = FrameWriter::begin(out, Head::of_connection(Kind::AGENT_HELLO));
        encode_item(VERSION, Data::Str(VERSION_2_0), frame.out);
        encode_item(MAX_FRAME_SIZE, Data::Uint32(self.frame_bytes_max), frame.out);
        encode_item(CAPABILITIES, Data::Str(self.capabilities), frame.out);
        frame.finish();
    }
}

/// Whether a list like `2.0, 1.5` contains any 2.x version, which includes all lower minor versions (3.2.4).
fn announces_2_0(versions: &[u8]) -> bool {
    versions.split(|&byte| byte == b',').any(|version| match version.trim_ascii() {
        b"2" => true,
        [b'2', b'.', minor @ ..] => !minor.is_empty() && minor.iter().all(u8::is_ascii_digit),
        _ => false,
    })
}

/// Accepts any integer type. A number of more than 32 bits becomes the largest 32-bit number.
fn frame_bytes_max(value: Option<Data<'_>>) -> Result<u32, Error> {
    let bytes = value.ok_or(Error::NoFrameSize)?.to_i64().ok_or(Error::BadFrameSize)?;
    match u32::try_from(bytes.min(u32::MAX.into())) {
        Ok(bytes) if bytes >= FRAME_BYTES_MIN => Ok(bytes),
        _ => Err(Error::BadFrameSize),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReadError;
    use crate::data::tests::any_bytes;

    /// The hello of HAProxy 2.6 and 3.0, with an invented engine-id.
    pub(crate) const HAPROXY_2_6: &[u8] = b"\x00\x00\x00\x81\x01\x00\x00\x00\x01\x00\x00\
        \x12supported-versions\x08\x032.0\
        \x0emax-frame-size\x03\xfc\xf0\x06\
        \x0ccapabilities\x08\x10pipelining,async\
        \x09engine-id\x08\x24b2a7e1f0-5c5e-4a2b-9d3c-0f1e2d3c4b5a";

    /// The hello of HAProxy 3.2 and 3.5.
    pub(crate) const HAPROXY_3_2: &[u8] = b"\x00\x00\x00\x7b\x01\x00\x00\x00\x01\x00\x00\
        \x12supported-versions\x08\x032.0\
        \x0emax-frame-size\x03\xfc\xf0\x06\
        \x0ccapabilities\x08\x0apipelining\
        \x09engine-id\x08\x24b2a7e1f0-5c5e-4a2b-9d3c-0f1e2d3c4b5a";

    /// The hello of `option spop-check`, the same in all versions.
    pub(crate) const HEALTH_CHECK: &[u8] = b"\x00\x00\x00\x4e\x01\x00\x00\x00\x01\x00\x00\
        \x12supported-versions\x08\x032.0\
        \x0emax-frame-size\x03\xfc\xf0\x06\
        \x0ccapabilities\x08\x00\
        \x0bhealthcheck\x11";

    /// The hello of HAProxy 3.2, decoded.
    pub(crate) const HELLO: HaproxyHello<'static> = HaproxyHello {
        engine_id: Some(b"b2a7e1f0-5c5e-4a2b-9d3c-0f1e2d3c4b5a"),
        ..HaproxyHello::new(16_380)
    };

    pub(crate) fn cut(bytes: &[u8]) -> Frame<'_> {
        let (frame, consumed) = Frame::cut(bytes, u32::MAX).unwrap().unwrap();
        assert_eq!(consumed, bytes.len());
        frame
    }

    /// A HAPROXY-HELLO of these items.
    pub(crate) fn hello_of(items: &[(&[u8], Data<'_>)]) -> Vec<u8> {
        of(Kind::HAPROXY_HELLO, items)
    }

    fn of(kind: Kind, items: &[(&[u8], Data<'_>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let frame = FrameWriter::begin(&mut bytes, Head::of_connection(kind));
        for &(name, value) in items {
            encode_item(name, value, frame.out);
        }
        frame.finish();
        bytes
    }

    fn with(versions: Data<'_>, frame_size: Data<'_>) -> Result<u32, Error> {
        let bytes = hello_of(&[(SUPPORTED_VERSIONS, versions), (MAX_FRAME_SIZE, frame_size)]);
        HaproxyHello::decode(cut(&bytes)).map(|hello| hello.frame_bytes_max)
    }

    #[test]
    fn haproxys_own_bytes_are_read_and_written() {
        assert_eq!((HAPROXY_2_6.len(), HAPROXY_3_2.len()), (133, 127));
        let capabilities = b"pipelining,async";
        let check = HaproxyHello { capabilities: b"", engine_id: None, healthcheck: true, ..HELLO };
        for (bytes, hello) in [
            (HAPROXY_2_6, HaproxyHello { capabilities, ..HELLO }),
            (HAPROXY_3_2, HELLO),
            (HEALTH_CHECK, check),
        ] {
            assert_eq!(HaproxyHello::decode(cut(bytes)), Ok(hello));
            let mut out = Vec::new();
            hello.encode(&mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn the_answer_has_these_bytes() {
        let bytes = b"\x00\x00\x00\x40\x65\x00\x00\x00\x01\x00\x00\
            \x07version\x08\x032.0\
            \x0emax-frame-size\x03\xfc\xf0\x06\
            \x0ccapabilities\x08\x0apipelining";
        let hello = AgentHello { frame_bytes_max: 16_380, capabilities: b"pipelining" };
        let mut out = Vec::new();
        hello.encode(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(AgentHello::decode(cut(bytes)), Ok(hello));
    }

    #[test]
    fn items_come_in_any_order_and_unknown_ones_are_skipped() {
        let bytes = hello_of(&[
            (b"x-later", Data::Bin(b"\xff\x00")),
            (HEALTHCHECK, Data::Bool(false)),
            (CAPABILITIES, Data::Str(b"pipelining")),
            (b"", Data::Null),
            (MAX_FRAME_SIZE, Data::Uint32(16_380)),
            (ENGINE_ID, Data::Str(HELLO.engine_id.unwrap())),
            (SUPPORTED_VERSIONS, Data::Str(b"2.0")),
        ]);
        assert_eq!(HaproxyHello::decode(cut(&bytes)), Ok(HELLO));
    }

    #[test]
    fn of_an_item_that_comes_twice_the_last_one_counts() {
        let bytes = hello_of(&[
            (SUPPORTED_VERSIONS, Data::Str(b"1.0")),
            (MAX_FRAME_SIZE, Data::Uint32(16_380)),
            (SUPPORTED_VERSIONS, Data::Str(b"2.0")),
            (MAX_FRAME_SIZE, Data::Uint32(4_092)),
        ]);
        assert_eq!(HaproxyHello::decode(cut(&bytes)).map(|hello| hello.frame_bytes_max), Ok(4_092));
    }

    #[test]
    fn version_and_frame_size_must_be_there_and_capabilities_need_not() {
        let (versions, frame_size) = (Data::Str(b"2.0"), Data::Uint32(16_380));
        let without_version = hello_of(&[(MAX_FRAME_SIZE, frame_size)]);
        assert_eq!(HaproxyHello::decode(cut(&without_version)), Err(Error::NoVersion));
        let without_frame_size = hello_of(&[(SUPPORTED_VERSIONS, versions)]);
        assert_eq!(HaproxyHello::decode(cut(&without_frame_size)), Err(Error::NoFrameSize));
        assert_eq!(with(versions, frame_size), Ok(16_380));
        assert_eq!(HaproxyHello::decode(cut(&hello_of(&[]))), Err(Error::NoVersion));
    }

    #[test]
    fn any_version_2_is_ours_and_no_other() {
        let ours = ["2.0", "2", "2.1", "2.15", "1.0, 2.0", "1.0,2.0", " 3.0 ,\t2.7 ", "2.0,", "x, 2.0"];
        for versions in ours {
            assert_eq!(with(Data::Str(versions.as_bytes()), Data::Uint32(256)), Ok(256), "{versions:?}");
        }
        let others =
            ["", "1.0", "3.0", "20", "2.", ".2", "2x", "2.x", "2.0.1", "-2.0", "02.0", "2.0 1.0", "12.0"];
        for versions in others {
            let refused = with(Data::Str(versions.as_bytes()), Data::Uint32(256));
            assert_eq!(refused, Err(Error::BadVersion), "{versions:?}");
        }
        assert_eq!(with(Data::Uint32(2), Data::Uint32(256)), Err(Error::BadVersion));
    }

    #[test]
    fn a_frame_size_is_any_integer_of_at_least_256() {
        let sizes = [Data::Int32(256), Data::Uint32(256), Data::Int64(256), Data::Uint64(256)];
        for size in sizes {
            assert_eq!(with(Data::Str(b"2.0"), size), Ok(256));
        }
        assert_eq!(with(Data::Str(b"2.0"), Data::Int64(i64::MAX)), Ok(u32::MAX));
        let refused =
            [Data::Uint32(255), Data::Int32(-1), Data::Int64(i64::MIN), Data::Null, Data::Str(b"16380")];
        for size in refused {
            assert_eq!(with(Data::Str(b"2.0"), size), Err(Error::BadFrameSize));
        }
    }

    #[test]
    fn a_hello_is_whole_and_has_no_ids() {
        let head = Head::of_connection(Kind::HAPROXY_HELLO);
        let decode = |head| HaproxyHello::decode(Frame { head, ..cut(HAPROXY_3_2) });
        assert_eq!(decode(head), Ok(HELLO));
        assert_eq!(decode(Head { flags: 0, ..head }), Err(Error::Fragmented));
        assert_eq!(decode(Head { stream_id: 1, ..head }), Err(Error::UnexpectedId));
        assert_eq!(decode(Head { frame_id: 1, ..head }), Err(Error::UnexpectedId));
        assert_eq!(decode(Head { flags: 0xffff_ffff, ..head }), Ok(HELLO), "other flags are reserved");
    }

    #[test]
    fn a_hello_that_is_cut_short_is_malformed() {
        let whole = cut(HAPROXY_3_2);
        for end in 0..whole.payload.len() {
            // A payload that ends between two items is well-formed.
            let want = match end {
                0 => Err(Error::NoVersion),
                24 => Err(Error::NoFrameSize),
                43 => Ok(HaproxyHello { capabilities: b"", engine_id: None, ..HELLO }),
                68 => Ok(HaproxyHello { engine_id: None, ..HELLO }),
                _ => Err(Error::Read(ReadError::Truncated)),
            };
            let frame = Frame { payload: &whole.payload[..end], ..whole };
            assert_eq!(HaproxyHello::decode(frame), want, "{end}");
        }
    }

    #[test]
    fn an_agent_that_haproxy_would_refuse_is_refused() {
        let hello = |version, size| {
            let items = [(VERSION, version), (MAX_FRAME_SIZE, size)];
            AgentHello::decode(cut(&of(Kind::AGENT_HELLO, &items))).map(|hello| hello.frame_bytes_max)
        };
        assert_eq!(hello(Data::Str(b"2.0"), Data::Uint32(256)), Ok(256));
        assert_eq!(hello(Data::Str(b"2"), Data::Uint32(256)), Err(Error::BadVersion));
        assert_eq!(hello(Data::Str(b"2.0"), Data::Uint32(255)), Err(Error::BadFrameSize));
        let nothing = of(Kind::AGENT_HELLO, &[]);
        assert_eq!(AgentHello::decode(cut(&nothing)), Err(Error::NoVersion));
    }

    proptest! {
        #[test]
        fn a_haproxy_hello_reads_back(
            frame_bytes_max in FRAME_BYTES_MIN..,
            capabilities in any_bytes(),
            engine_id in prop::option::of(any_bytes()),
            healthcheck: bool,
        ) {
            let hello = HaproxyHello { frame_bytes_max, capabilities, engine_id, healthcheck, ..HELLO };
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            prop_assert_eq!(HaproxyHello::decode(cut(&bytes)), Ok(hello));
        }

        #[test]
        fn an_agent_hello_reads_back(frame_bytes_max in FRAME_BYTES_MIN.., capabilities in any_bytes()) {
            let hello = AgentHello { frame_bytes_max, capabilities };
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            prop_assert_eq!(AgentHello::decode(cut(&bytes)), Ok(hello));
        }
    }
}
