# The agent in its own image: docker build --tag slowlane .
#
#   docker run --rm --read-only --cap-drop=ALL -p 127.0.0.1:9000-9001:9000-9001 -v "$PWD/haproxy/maps:/etc/slowlane/policy:ro" slowlane
#
# The directory before the first colon is your policy; here it is the example. The user 65532 must be able to read it.
# SPOP, the HTTP check and gRPC listen on all addresses of the container, because its loopback interface cannot be reached from outside.
# Publish their ports only to the proxies. The admin listener stays on the loopback interface:
# `docker exec CONTAINER slowlane top --once` reaches it.

FROM rust:1.88-slim-bookworm AS build
WORKDIR /build
COPY Cargo.toml Cargo.lock README.md slowlane.toml ./
COPY crates crates
COPY src src
COPY tools tools
# These are built into the program, which prints them.
COPY haproxy haproxy
COPY nginx nginx
COPY doc/book doc/book
COPY examples/envoy examples/envoy
COPY examples/envoy-ratelimit examples/envoy-ratelimit
# The manifest names tests and benches whose files stay outside: cargo build --bin does not look at them.
RUN cargo build --locked --profile dist --bin slowlane
RUN sed -i 's/^# dir = /dir = /' slowlane.toml && mkdir policy && echo '0 rate=unlimited' > policy/slo.map \
    && target/dist/slowlane check --config slowlane.toml

# Only glibc and libgcc: no shell, no package manager. Its user nonroot is 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /build/target/dist/slowlane /usr/bin/slowlane
COPY --from=build /build/slowlane.toml /etc/slowlane/slowlane.toml
COPY --from=build /build/policy /etc/slowlane/policy
USER 65532:65532
# SPOP for HAProxy, the HTTP check for nginx, gRPC for Envoy
EXPOSE 9000 9001 9005
STOPSIGNAL SIGTERM
# Asks the admin listener for the verdict of a request; nothing is counted.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/bin/slowlane", "why", "source=127.0.0.1"]
ENTRYPOINT ["/usr/bin/slowlane"]
CMD ["run", "--config", "/etc/slowlane/slowlane.toml", "--spop", "0.0.0.0:9000", "--http", "0.0.0.0:9001", "--grpc", "0.0.0.0:9005"]
