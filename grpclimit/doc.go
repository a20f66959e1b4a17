// Package grpclimit limits gRPC calls: interceptors for servers, which ask a
// policy, and for clients, which obey what servers say and pace their own calls.
//
//	srv := grpc.NewServer(grpclimit.Server(eng)...)
//	conn, err := grpc.NewClient(target, append(grpclimit.Client(grpclimit.Obey(client.Patience{})), creds)...)
//
// # Attributes
//
// A rule sees a call as
//
//	path, route   the full method, /package.Service/Method
//	method        POST, as on the wire
//	host          the :authority that the client asked for
//	client.ip     the peer's address; see [TrustedProxies]
//	tls.client    whom its certificate is for, if the TLS credentials verified it
//	header.NAME   the metadata of that name, several values joined by ", "
//	proxy.NAME    the same, where the peer is one of the [TrustedProxies], which set it
//	user, …       what the program says: [User], [Tenant], [Device], [Attr], [Claim]
//
//	content-length  how large the message is, before it is compressed
//
// Metadata is what the client claims, as header fields are in HTTP, but for what a
// trusted proxy sets (proxy.NAME), which has to overwrite what it is sent. There are
// no cookies and queries. The message is the request of a call with one; of a
// stream it is, with [Messages], each one that is received, while opening it
// has none. One of a codec that knows no proto.Message has no content-length.
// [Cost] says what else a message costs.
//
// # Answers
//
//   - A rule refuses: RESOURCE_EXHAUSTED. The details are a RetryInfo with the
//     exact wait, which is enough for an otherwise idle key, unless no wait
//     helps; and a QuotaFailure with one violation for each rule that refuses.
//   - A rule that denies by itself: PERMISSION_DENIED. So it is with an override
//     that denies, with a RetryInfo if that ends.
//   - A penalty blocks the caller: RESOURCE_EXHAUSTED with the same details; the
//     wait is until the block ends.
//   - The store can't answer, and a rule says closed: UNAVAILABLE with a
//     RetryInfo of a second, and without a QuotaFailure. A fault is never told as
//     a denial.
//   - A cost is negative, or metadata that tells callers apart has several
//     values: INVALID_ARGUMENT.
//
// Each has a RequestInfo too, with the id under which [Logger] tells of it.
//
// A rule with a delay holds a call until it fits; one that would not before its
// deadline is refused at once. Close the engine before the server stops: those
// who are held are then told UNAVAILABLE, with a RetryInfo of a second.
//
// Of a violation the subject is what the rule's key is made of, never whose
// bucket it is; quota_id is the rule, quota_metric its unit, quota_value how
// much fits at once, api_service the service and quota_dimensions the method.
// future_quota_value is set by [FutureQuota].
//
// # After the call
//
// The handler finds its verdict with policy.FromContext, and settles it with Spent
// and GiveBack. Rules that count failures hear of the code with which the call
// ends, as UNAUTHENTICATED; a panic is an error, and a client that left before
// it was answered has failed. Slots are held until the handler returns, for
// streams too. Rules that count bytes pay for the messages of the answer, before
// they are compressed; those of a codec that knows no proto.Message stay
// estimated.
package grpclimit
