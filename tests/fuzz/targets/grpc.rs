//! Any bytes as the body of a gRPC call: what is read has bounded fields, and reads back as it was. A stream of them has
//! the same messages in any pieces.

use bytes::BytesMut;
use grpc::accesslog::LogMessage;
use grpc::auth::CheckRequest;
use grpc::ratelimit::RateLimitRequest;
use grpc::{decoded, framed, next_message, unframed};
use slowlane::proxy::envoy::{
    Origins, attribute_fields, check, descriptor_fields, descriptor_text, ends, own_slo,
};
use slowlane_core::base::{Amount, FIELDS_MAX, Field, Value};

pub fn run(body: &[u8]) {
    read_as_a_stream(body);
    let Ok(message) = unframed(&body.to_vec().into()) else { return };
    let origins = Origins(vec![("owner".into(), "x-api-key".into()), ("source".into(), "a".into())]);
    if let Ok(request) = decoded::<RateLimitRequest>(&message) {
        let again = decoded::<RateLimitRequest>(&unframed(&framed(&request).into()).unwrap());
        assert_eq!(again.unwrap(), request);
        if check(&request).is_ok() {
            for descriptor in &request.descriptors {
                let text = descriptor_text(descriptor);
                assert_eq!(text.matches(',').count(), descriptor.entries.len().saturating_sub(1));
                assert_eq!(text.matches('=').count(), descriptor.entries.len());
                are_bounded(descriptor_fields(&request, descriptor, &text, &origins));
                assert_eq!(own_slo(descriptor).is_some(), descriptor.limit.is_some());
            }
        }
    }
    if let Ok(request) = decoded::<CheckRequest>(&message) {
        are_bounded(attribute_fields(&request, &origins));
    }
}

/// A stream has the same messages, however its bytes arrive.
fn read_as_a_stream(body: &[u8]) {
    let mut messages = Vec::new();
    let mut whole = BytesMut::from(body);
    while let Ok(Some(message)) = next_message(&mut whole) {
        messages.push(message);
    }
    let (mut unread, mut bytewise) = (BytesMut::new(), Vec::new());
    for byte in body {
        unread.extend_from_slice(&[*byte]);
        match next_message(&mut unread) {
            Ok(message) => bytewise.extend(message),
            Err(_) => break,
        }
    }
    assert_eq!(bytewise, messages);
    for message in messages.iter().filter_map(|message| decoded::<LogMessage>(message).ok()) {
        let entries = message.http.as_ref().map_or(0, |http| http.entries.len());
        let ends: Vec<_> = ends(&message).collect();
        assert!(ends.len() <= entries);
        for (_, ending) in ends {
            assert!(ending.seconds.is_some_and(|seconds| seconds <= Amount::MAX));
            assert!(ending.bytes.is_some_and(|bytes| bytes <= Amount::MAX));
        }
    }
}

fn are_bounded<'a>(fields: impl Iterator<Item = Field<'a>>) {
    let fields: Vec<_> = fields.collect();
    assert!(fields.len() <= FIELDS_MAX && fields.iter().all(|field| field.value != Value::Text(b"")));
}
