//! Any bytes as the body of a gRPC call: what is read has bounded fields, and reads back as it was.

use grpc::auth::CheckRequest;
use grpc::ratelimit::RateLimitRequest;
use grpc::{decoded, framed, unframed};
use slowlane::proxy::envoy::{Origins, attribute_fields, checked, descriptor_fields};
use slowlane_core::base::{FIELDS_MAX, Field, Value};

pub fn run(body: &[u8]) {
    let Ok(message) = unframed(&body.to_vec().into()) else { return };
    let origins = Origins(vec![("owner".into(), "x-api-key".into()), ("source".into(), "a".into())]);
    if let Ok(request) = decoded::<RateLimitRequest>(&message) {
        let again = decoded::<RateLimitRequest>(&unframed(&framed(&request).into()).unwrap());
        assert_eq!(again.unwrap(), request);
        if let Ok(cost) = checked(&request) {
            assert!(cost.is_none_or(|cost| (0..=i64::from(u32::MAX)).contains(&cost)));
            are_bounded(descriptor_fields(&request, cost, &origins));
        }
    }
    if let Ok(request) = decoded::<CheckRequest>(&message) {
        are_bounded(attribute_fields(&request, &origins));
    }
}

fn are_bounded<'a>(fields: impl Iterator<Item = Field<'a>>) {
    let fields: Vec<_> = fields.collect();
    assert!(fields.len() <= FIELDS_MAX && fields.iter().all(|field| field.value != Value::Text(b"")));
}
