//! The log formats that are recognised without being named.

/// Their names and texts.
pub(super) const KNOWN: &[(&str, &str)] = &[
    ("haproxy httplog", HTTPLOG),
    ("haproxy httpslog", HTTPSLOG),
    ("haproxy httplog clf", CLF),
    ("haproxy, slowlane's", OURS_OF_HAPROXY),
    ("haproxy, slowlane's without the website", OURS_OF_HAPROXY_BEFORE),
    ("nginx combined", COMBINED),
    ("nginx, slowlane's", OURS_OF_NGINX),
];

/// `option httplog`
const HTTPLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs \
                       %{+Q}r";

/// `option httpslog`
const HTTPSLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs \
                        %{+Q}r %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] \
                        %[ssl_fc_sni]/%sslv/%sslc";

/// `option httplog clf`
const CLF: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc \
                   %sq %bq %CC %CS %hrl %hsl";

/// The format of the shipped `haproxy/*.cfg`.
pub(super) const OURS_OF_HAPROXY: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %tsc website=%[var(txn.website),url_enc] \
     %{+Q}r slowlane=%[var(txn.slowlane.verdict)]/%[var(txn.slowlane.delay)]/%[var(txn.slowlane.slo)]/\
     %[var(txn.slowlane.error)] owner=%[var(txn.owner),url_enc]";

/// The format of older shipped files, without the website and the owner.
const OURS_OF_HAPROXY_BEFORE: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %tsc %{+Q}r \
     slowlane=%[var(txn.slowlane.verdict)]/%[var(txn.slowlane.delay)]/%[var(txn.slowlane.slo)]/%[var(txn.slowlane.error)]";

/// nginx's predefined `combined`.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                        \"$http_referer\" \"$http_user_agent\"";

/// The format of the shipped `nginx/nginx.conf`.
pub(super) const OURS_OF_NGINX: &str = "$remote_addr [$time_local] \"$request\" $status $body_bytes_sent ${request_time}s host=$host \
                             slowlane=$slowlane_verdict id=$request_id";
